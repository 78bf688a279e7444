//! Rules over the packages: their dependencies, the workspace's lints in all of them, and the files in the archives of
//! the published ones.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use toml::Table;

use super::source::{Violation, package_of};
use crate::tool::{Outcome, cargo, read};

/// The packages without `unisono-`, floor above floor: the code of each may use packages of lower floors only.
const FLOORS: [&str; 9] = [
    "schedule kernels shared-memory double-common xtask lab double-tests",
    "communicator double-hccl double-nccl",
    "collectives algorithms-cli backend vendor-library",
    "engine control compression offload cuda",
    "job compression-cuda compression-wgpu offload-ccl offload-hccl offload-nccl",
    "transport-tcp compression-npu",
    "unisono",
    "c cli tests benches compare converge",
    "python vendor-tests gpu-check soak",
];

/// The most packages that a program compiles for `unisono` with its default features: 60 when this was written, and a
/// few to spare for shared memory and objects.
const COMPILED_MAX: usize = 68;

/// The manifest of the other workspace, the laboratory.
const OTHER: &str = "benches/lab/Cargo.toml";

/// The texts of the licences, which each archive must hold.
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// Every rule of this file. `files` are the paths and texts of the Rust files.
///
/// # Errors
/// When a manifest cannot be read, or cargo does not answer.
pub(super) fn check(repository: &Path, files: &[(String, String)]) -> Outcome<Vec<Violation>> {
    let all = ["Cargo.toml", OTHER].into_iter().map(packages);
    let all: Vec<Value> = all.collect::<Outcome<Vec<_>>>()?.into_iter().flatten().collect();
    let folders: Vec<&str> = all.iter().map(|package| folder(package, repository)).collect();
    let mut found = Vec::new();
    let mut say = |folder: &str, rule, text: String| {
        found.push(Violation::new(&format!("{folder}/Cargo.toml"), 1, rule, text));
    };
    for (package, folder) in all.iter().zip(&folders) {
        let is_own = |path: &str| package_of(&folders, path) == Some(folder);
        let texts = files.iter().filter(|(path, _)| is_own(path)).map(|(_, text)| text.as_str());
        let problems = problems(package, &texts.collect::<Vec<_>>(), repository)?;
        problems.into_iter().for_each(|(rule, problem)| say(folder, rule, problem));
    }
    let root = table(&repository.join("Cargo.toml"))?;
    if let Some(text) = differs(&root, &table(&repository.join(OTHER))?) {
        say(OTHER.trim_end_matches("/Cargo.toml"), "workspace", text);
    }
    let tree = ["tree", "-p", "unisono", "-e", "normal,build", "--prefix", "none", "--locked"];
    let count =
        output(tree)?.lines().map(|line| line.trim_end_matches(" (*)")).collect::<BTreeSet<_>>().len();
    if count > COMPILED_MAX {
        let text = format!(
            "a program compiles {count} packages for it, at most {COMPILED_MAX}: cargo tree -p unisono"
        );
        say("crates/unisono", "packages", text);
    }
    Ok(found)
}

/// The broken rules of a package of cargo's metadata, whose files have these texts.
fn problems(package: &Value, texts: &[&str], repository: &Path) -> Outcome<Vec<(&'static str, String)>> {
    let (name, folder) = (text(&package["name"]), repository.join(folder(package, repository)));
    let floor = |name: &str| {
        let is_on = |floor: &&str| floor.split(' ').any(|one| one == name.trim_start_matches("unisono-"));
        FLOORS.iter().position(is_on)
    };
    let mut found = Vec::new();
    let mut say = |is_broken: bool, rule, text: String| found.extend(is_broken.then_some((rule, text)));
    say(floor(name).is_none(), "arrows", format!("{name} has no floor in xtask/src/tidy/workspace.rs"));
    for dependency in package["dependencies"].as_array().into_iter().flatten() {
        let used = text(&dependency["name"]);
        // Only packages of this workspace come by path. Tests may use any.
        let has_arrow = dependency["path"].is_string() && dependency["kind"] != "dev";
        let is_below = floor(used).is_some_and(|used| floor(name).is_none_or(|own| used < own));
        let problem = format!("{name} may not use {used}, which is not on a lower floor");
        say(has_arrow && !is_below, "arrows", problem);
        let word = dependency["rename"].as_str().unwrap_or(used).replace('-', "_");
        let names_it = |text: &&str| {
            text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').any(|one| one == word)
        };
        say(!texts.iter().any(names_it), "unused", format!("no code names {used}: remove it"));
    }
    let shares_lints = read(&folder.join("Cargo.toml"))?.contains("[lints]\nworkspace = true\n");
    say(!shares_lints, "lints", "write [lints] workspace = true".to_owned());
    if is_published(package) {
        let has_readme = text(&package["readme"]).ends_with("../README.md");
        say(!has_readme, "archive", "write readme.workspace = true, or publish = false".to_owned());
        for name in LICENCES {
            let text = |folder: &Path| std::fs::read(folder.join(name)).ok();
            let is_there = text(&folder).is_some_and(|own| Some(own) == text(repository));
            say(!is_there, "archive", format!("link {name} of the repository into the package's folder"));
        }
    }
    Ok(found)
}

/// Lints, profiles or a version of a dependency of both in which another workspace differs from the product.
fn differs(root: &Table, other: &Table) -> Option<String> {
    let workspace = |table: &Table, key: &str| table.get("workspace").and_then(|part| part.get(key)).cloned();
    if workspace(root, "lints") != workspace(other, "lints") || root.get("profile") != other.get("profile") {
        return Some("the lints and profiles are not those of the root".to_owned());
    }
    let (ours, theirs) = (workspace(root, "dependencies")?, workspace(other, "dependencies")?);
    let is_other = |(name, theirs): &(&String, &toml::Value)| {
        let at_root = format!("{theirs:?}").replace("../../", "");
        ours.get(name).is_some_and(|ours| format!("{ours:?}") != at_root)
    };
    theirs.as_table()?.iter().find(is_other).map(|(name, _)| format!("not as in the root: {name}"))
}

/// The names of the packages of the workspace that are not published.
pub(crate) fn unpublished() -> Outcome<Vec<String>> {
    let packages = packages("Cargo.toml")?.into_iter().filter(|package| !is_published(package));
    Ok(packages.map(|package| text(&package["name"]).to_owned()).collect())
}

/// The packages of a workspace, as cargo describes them.
fn packages(manifest: &str) -> Outcome<Vec<Value>> {
    let words = ["metadata", "--no-deps", "--format-version", "1", "--manifest-path", manifest];
    let mut metadata: Value = serde_json::from_str(&output(words)?).map_err(|error| error.to_string())?;
    Ok(metadata["packages"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A package's folder, relative to the repository.
fn folder<'a>(package: &'a Value, repository: &Path) -> &'a str {
    let folder = Path::new(text(&package["manifest_path"])).parent();
    folder.and_then(|folder| folder.strip_prefix(repository).ok()?.to_str()).unwrap_or_default()
}

/// `publish = false` is an empty list of registries.
fn is_published(package: &Value) -> bool {
    package["publish"].as_array().is_none_or(|registries| !registries.is_empty())
}

fn table(file: &Path) -> Outcome<Table> {
    read(file)?.parse().map_err(|error| format!("{}: {error}", file.display()))
}

/// The output of cargo.
fn output<const N: usize>(words: [&str; N]) -> Outcome<String> {
    let output = cargo(words).output().map_err(|error| format!("cargo {}: {error}", words[0]))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("cargo {}: {}", words[0], String::from_utf8_lossy(&output.stderr))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tool::repository;

    /// The broken rules of a package in a repository where `folder` has the licences. Without a page it is not
    /// published.
    fn broken(name: &str, lints: &str, readme: &str, uses: &str, folder: &str) -> String {
        let repository = tempfile::tempdir().unwrap();
        let folder = repository.path().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("Cargo.toml"), lints).unwrap();
        LICENCES.iter().for_each(|name| std::fs::write(repository.path().join(name), "text").unwrap());
        let uses: Vec<_> = uses.split_whitespace().map(|name| json!({ "name": name, "path": "/" })).collect();
        let package = json!({
            "name": name,
            "manifest_path": folder.join("Cargo.toml"),
            "publish": if readme.is_empty() { json!([]) } else { Value::Null },
            "readme": readme,
            "dependencies": uses,
        });
        let found = problems(&package, &["use unisono_engine::a;"], repository.path()).unwrap();
        found.into_iter().map(|(rule, _)| rule).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_rule_over_a_package_is_found() {
        let (lints, readme) = ("[lints]\nworkspace = true\n", "../../README.md");
        for (name, lints, readme, uses, folder, expected) in [
            ("unisono-schedule", lints, readme, "unisono-engine", "", "arrows"),
            ("unisono-transport-tcp", lints, readme, "unisono-engine", "", ""),
            ("unisono-engine", lints, readme, "unisono-schedule", "", "unused"),
            ("unisono-new", lints, readme, "", "", "arrows"),
            ("unisono", lints, "README.md", "", "", "archive"),
            ("unisono", lints, readme, "", "elsewhere", "archive archive"),
            ("unisono", lints, "", "", "elsewhere", ""),
            ("unisono", "[lints]\nrust = {}\n", readme, "", "", "lints"),
        ] {
            assert_eq!(broken(name, lints, readme, uses, folder), expected, "{name} {lints} {readme}");
        }
    }

    #[test]
    fn other_workspaces_have_the_versions_lints_and_profiles_of_the_root() {
        let root =
            "[workspace.dependencies]\na = { path = \"a\" }\nb = \"1\"\n[workspace.lints.rust]\nx = 1\n";
        let differs = |other: &str| differs(&root.parse().unwrap(), &other.parse().unwrap());
        let lab = root.replace("b = \"1\"\n", "").replace("\"a\"", "\"../../a\"");
        assert_eq!(differs(&lab), None);
        let more = lab.replace("[workspace.lints", "own = \"1\"\n[workspace.lints");
        assert_eq!(differs(&more), None, "the root has none, so no version differs");
        assert!(differs(&format!("{lab}[profile.dev]\ndebug = false\n")).is_some());
        for (own, other) in [("x = 1", "x = 2"), ("../../a", "../a")] {
            assert!(differs(&lab.replace(own, other)).is_some(), "{other}");
        }
    }

    #[test]
    fn packages_are_read() {
        let list = packages("Cargo.toml").unwrap();
        let engine = list.iter().find(|package| package["name"] == "unisono-engine").unwrap();
        assert_eq!(folder(engine, repository()), "crates/engine");
        let names = unpublished().unwrap();
        let is_in = |name: &str| names.iter().any(|one| one == name);
        assert!(["xtask", "unisono-tests", "unisono-double-hccl"].into_iter().all(is_in), "{names:?}");
        assert!(!["unisono", "unisono-cli", "unisono-kernels"].into_iter().any(is_in), "{names:?}");
    }
}
