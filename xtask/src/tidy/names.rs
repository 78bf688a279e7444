//! The rule over the names that a program can reach in `unisono`: each is listed in a file, so that nobody adds a name
//! by accident; no glob and no re-export of a whole module of ours adds names by itself.

use std::path::Path;

use super::source::Violation;
use crate::names::Names;

const RULE: &str = "names";
const LIST: &str = "crates/unisono/names.txt";

/// The largest number of names for users, with all features; 167 of them need no feature.
pub(super) const USERS_MAX: usize = 217;

/// Compares the list with the crate.
///
/// # Errors
/// When a file is missing or is no Rust.
pub(super) fn check(repository: &Path, most: usize) -> Result<Vec<Violation>, String> {
    let names = Names::read(repository)?;
    let violation = |path: &str, line, text| Violation { path: path.to_owned(), line, rule: RULE, text };
    let unnamed = names.unnamed.iter();
    let mut found: Vec<Violation> = unnamed
        .map(|(file, line, what)| violation(file, *line, format!("list the names instead of {what}")))
        .collect();
    let (is, should) = (std::fs::read_to_string(repository.join(LIST)).unwrap_or_default(), names.list());
    if is != should {
        let same = is.lines().zip(should.lines()).take_while(|(left, right)| left == right).count();
        found.push(violation(LIST, same + 1, format!("the names differ: cargo xtask names > {LIST}")));
    }
    if names.of_users() > most {
        found.push(violation(LIST, 1, format!("{} names for users, at most {most}", names.of_users())));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list of a crate of these files, and the violations where `names.txt` holds that list and `more`.
    fn checked(files: &[(&str, &str)], more: &str, most: usize) -> (String, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("crates/x-y/src/lib.rs", "pub mod inner; mod private;");
        files.iter().for_each(|(path, text)| write(&format!("crates/unisono/src/{path}"), text));
        let list = Names::read(folder.path()).unwrap().list();
        write(LIST, &format!("{list}{more}"));
        (list, check(folder.path(), most).unwrap().iter().map(Violation::to_string).collect())
    }

    #[test]
    fn names_are_found_through_modules_groups_and_renames() {
        let lib = r#"
            mod world;
            pub mod call;
            #[doc(hidden)] pub mod hidden { pub fn inner() {} }
            #[cfg(feature = "fast")] pub mod extend {
                pub use unisono_x::Plain;
                #[cfg(any(feature = "a", feature = "b"))] pub use unisono_x::{Other as Else, deep::{Third}};
            }
            pub mod prelude { pub use crate::{World, call, world::Private}; }
            pub use world::World;
            fn own() {}
        "#;
        let call = ("call.rs", "pub struct Call; pub(crate) struct Inner; pub mod deep;");
        let (list, found) =
            checked(&[("lib.rs", lib), call, ("call/deep/mod.rs", "pub const MOST: u8 = 0;")], "", 4);
        let expected = "For users: 4 names, 4 of them without a feature\n\n\
            unisono::World\nunisono::call::Call\nunisono::call::deep::MOST\nunisono::prelude::Private\n\n\
            For authors of transports, vendors' backends and codecs: 3 names, 0 of them without a feature\n\n\
            unisono::extend::Else [a or b]\nunisono::extend::Plain [fast]\nunisono::extend::Third [a or b]\n";
        assert_eq!((list.as_str(), found), (expected, vec![]));
    }

    #[test]
    fn a_list_that_differs_and_a_name_too_many_are_found() {
        let (_, found) = checked(&[("lib.rs", "pub fn a() {}\npub use bytemuck;")], "old\n", 1);
        let expected = [
            "crates/unisono/names.txt:8: names: the names differ: cargo xtask names > crates/unisono/names.txt",
            "crates/unisono/names.txt:1: names: 2 names for users, at most 1",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn globs_and_whole_modules_are_found() {
        let cases = [
            ("pub use unisono_x_y::private::*;", "a glob of `unisono_x_y::private`"),
            ("pub use unisono_x_y as short;", "all of `unisono_x_y`"),
            ("pub use unisono_x_y::inner;", "all of `unisono_x_y::inner`"),
            ("pub use unisono_x_y::inner::{Named, self};", "all of `unisono_x_y::inner`"),
        ];
        for (line, what) in cases {
            let expected = format!("crates/unisono/src/lib.rs:1: names: list the names instead of {what}");
            assert_eq!(checked(&[("lib.rs", line)], "", 1).1, [expected]);
        }
    }
}
