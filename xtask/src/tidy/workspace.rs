//! Rules over the packages: their dependencies, the workspace's lints in all of them, and the files in the archives of
//! the published ones.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;
use toml::Table;

use super::source::{Violation, package_of};
use crate::tool::{Outcome, cargo, read, repository};

/// The packages without `unisono-`, floor above floor: the code of each may use packages of lower floors only.
const FLOORS: [&str; 9] = [
    "schedule kernels shared-memory double-common xtask lab double-tests",
    "communicator double-hccl double-nccl",
    "collectives algorithms-cli backend vendor-library",
    "engine control compression offload cuda",
    "job compression-cuda compression-wgpu offload-ccl offload-hccl offload-nccl",
    "transport-tcp compression-npu",
    "unisono",
    "c cli python tests benches compare converge",
    "vendor-tests gpu-check soak",
];

/// The most packages that a program compiles for `unisono` with its default features: 60 when this was written, and a
/// few to spare for shared memory and objects.
const COMPILED_MAX: usize = 68;

/// Dependencies that only the code of a macro names, or a file of another package.
const NAMED_ELSEWHERE: &[(&str, &str)] = &[("unisono-vendor-tests", "allocation-counter")];

/// The manifests of the other workspaces: of the laboratory, and of the package for Python.
const OTHERS: [&str; 2] = ["benches/lab/Cargo.toml", "crates/unisono-python/Cargo.toml"];

/// The texts of the licences, which each archive must hold.
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// One package of ours.
struct Package {
    name: String,
    /// Relative to the repository.
    folder: String,
    manifest: Table,
    /// Its manifest does not say `publish = false`.
    is_published: bool,
    /// The packages of this workspace that its code or its build script uses. Its tests may use any.
    uses: Vec<String>,
    /// The names in its code of everything that it uses, in tests too.
    dependencies: Vec<String>,
}

/// Every rule of this file. `files` are the paths and texts of the Rust files.
///
/// # Errors
/// When a manifest cannot be read, or cargo does not answer.
pub(super) fn check(repository: &Path, files: &[(String, String)]) -> Outcome<Vec<Violation>> {
    let all = std::iter::once("Cargo.toml").chain(OTHERS).map(packages);
    let all: Vec<Package> = all.collect::<Outcome<Vec<_>>>()?.into_iter().flatten().collect();
    let folders: Vec<&str> = all.iter().map(|package| package.folder.as_str()).collect();
    let mut found = Vec::new();
    let mut say = |folder: &str, rule, text| {
        found.push(Violation { path: format!("{folder}/Cargo.toml"), line: 1, rule, text });
    };
    for package in &all {
        let is_own = |path: &str| package_of(&folders, path) == Some(&package.folder);
        let texts = files.iter().filter(|(path, _)| is_own(path)).map(|(_, text)| text.as_str());
        let problems = problems(package, &texts.collect::<Vec<_>>(), repository);
        problems.into_iter().for_each(|(rule, problem)| say(&package.folder, rule, problem));
    }
    let root = table(&repository.join("Cargo.toml"))?;
    for other in OTHERS {
        let problem = differs(&root, &table(&repository.join(other))?);
        problem.into_iter().for_each(|text| say(other.trim_end_matches("/Cargo.toml"), "workspace", text));
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

/// The broken rules of a package, whose files have these texts.
fn problems(package: &Package, texts: &[&str], repository: &Path) -> Vec<(&'static str, String)> {
    let Package { name, folder, manifest, is_published, uses, dependencies } = package;
    let floor = |name: &str| {
        let is_on = |floor: &&str| floor.split(' ').any(|one| one == name.trim_start_matches("unisono-"));
        FLOORS.iter().position(is_on)
    };
    let is_above = |used: &&String| floor(used).is_none_or(|used| floor(name).is_some_and(|own| used >= own));
    let mut found: Vec<_> = uses
        .iter()
        .filter(is_above)
        .map(|used| ("arrows", format!("{name} may not use {used}, which is not on a lower floor")))
        .collect();
    let mut say = |is_broken: bool, rule, text: String| found.extend(is_broken.then_some((rule, text)));
    say(floor(name).is_none(), "arrows", format!("{name} has no floor in xtask/src/tidy/workspace.rs"));
    for dependency in dependencies {
        let word = dependency.replace('-', "_");
        let names_it = |text: &&str| {
            text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').any(|one| one == word)
        };
        let is_named = NAMED_ELSEWHERE.contains(&(name, dependency)) || texts.iter().any(names_it);
        say(!is_named, "unused", format!("no code names {dependency}: remove it"));
    }
    let shares = |value: Option<&toml::Value>| {
        value.and_then(|value| value.get("workspace")).and_then(toml::Value::as_bool) == Some(true)
    };
    say(!shares(manifest.get("lints")), "lints", "write [lints] workspace = true".to_owned());
    let readme = manifest.get("package").and_then(|package| package.get("readme"));
    let needs_readme = *is_published && !shares(readme);
    say(needs_readme, "archive", "write readme.workspace = true, or publish = false".to_owned());
    let read = |folder: &Path, name: &str| std::fs::read(folder.join(name)).ok();
    for name in LICENCES {
        let text = read(&repository.join(folder), name);
        let is_missing = *is_published && (text.is_none() || text != read(repository, name));
        say(is_missing, "archive", format!("link {name} of the repository into the package's folder"));
    }
    found
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
///
/// # Errors
/// When cargo does not say.
pub(crate) fn unpublished() -> Outcome<Vec<String>> {
    let packages = packages("Cargo.toml")?.into_iter();
    Ok(packages.filter(|package| !package.is_published).map(|package| package.name).collect())
}

fn packages(manifest: &str) -> Outcome<Vec<Package>> {
    let words = ["metadata", "--no-deps", "--format-version", "1", "--manifest-path", manifest];
    let metadata: Value = serde_json::from_str(&output(words)?).map_err(|error| error.to_string())?;
    metadata["packages"].as_array().into_iter().flatten().map(read_package).collect()
}

fn read_package(package: &Value) -> Outcome<Package> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let file = PathBuf::from(text(&package["manifest_path"]));
    let folder = file.parent().and_then(|folder| folder.strip_prefix(repository()).ok());
    let dependencies = || package["dependencies"].as_array().into_iter().flatten();
    // Only packages of this workspace come by path.
    let is_used = |one: &&Value| one["path"].is_string() && one["kind"].as_str() != Some("dev");
    Ok(Package {
        name: text(&package["name"]),
        folder: folder.unwrap_or(Path::new("")).display().to_string(),
        // `publish = false` is an empty list of registries.
        is_published: package["publish"].as_array().is_none_or(|registries| !registries.is_empty()),
        manifest: table(&file)?,
        uses: dependencies().filter(is_used).map(|one| text(&one["name"])).collect(),
        dependencies: dependencies()
            .map(|one| text(one.get("rename").filter(|name| name.is_string()).unwrap_or(&one["name"])))
            .collect(),
    })
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
    use super::*;

    const MANIFEST: &str = "[package]\nreadme.workspace = true\n[lints]\nworkspace = true\n";

    /// The broken rules of a package in a repository where `folder` has the licences.
    fn broken(name: &str, manifest: &str, is_published: bool, uses: &[&str], folder: &str) -> String {
        let repository = tempfile::tempdir().unwrap();
        LICENCES.iter().for_each(|name| std::fs::write(repository.path().join(name), "text").unwrap());
        let (name, folder, manifest) = (name.to_owned(), folder.to_owned(), manifest.parse().unwrap());
        let uses: Vec<String> = uses.iter().map(|&name| name.to_owned()).collect();
        let dependencies = uses.iter().map(|name| name.replace("-engine", "-drive")).collect();
        let package = Package { name, folder, manifest, is_published, uses, dependencies };
        let found = problems(&package, &["use unisono_drive::a;"], repository.path());
        found.into_iter().map(|(rule, _)| rule).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_rule_over_a_package_is_found() {
        let (engine, schedule) = (["unisono-engine"], ["unisono-schedule"]);
        let lints = "[lints]\nworkspace = true\n";
        for (name, manifest, is_published, uses, folder, expected) in [
            ("unisono-schedule", MANIFEST, true, &engine[..], "", "arrows"),
            ("unisono-transport-tcp", MANIFEST, true, &engine, "", ""),
            ("unisono-engine", MANIFEST, true, &schedule, "", "unused"),
            ("unisono-new", MANIFEST, true, &[], "", "arrows"),
            ("unisono", lints, true, &[], "", "archive"),
            ("unisono", MANIFEST, true, &[], "elsewhere", "archive archive"),
            ("unisono", lints, false, &[], "elsewhere", ""),
            ("unisono", "", false, &[], "", "lints"),
            ("unisono", "[lints]\nrust = {}\n", false, &[], "", "lints"),
        ] {
            assert_eq!(broken(name, manifest, is_published, uses, folder), expected, "{name} {manifest}");
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
        let engine = list.iter().find(|package| package.name == "unisono-engine").unwrap();
        assert_eq!(engine.folder, "crates/engine");
        assert!(engine.uses.contains(&"unisono-schedule".to_owned()), "{:?}", engine.uses);
        let names = unpublished().unwrap();
        let is_in = |name: &str| names.iter().any(|one| one == name);
        assert!(["xtask", "unisono-tests", "unisono-double-hccl"].into_iter().all(is_in), "{names:?}");
        assert!(!["unisono", "unisono-cli", "unisono-kernels"].into_iter().any(is_in), "{names:?}");
    }
}
