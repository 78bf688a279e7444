//! Rules over the packages: their allowed dependencies, the workspace's lints in all of them, and the files in the
//! archives of the published ones.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::source::Violation;

/// The packages, floor above floor: the code of each may use packages of lower floors only.
const FLOORS: &[&[&str]] = &[
    &[
        "unisono-schedule",
        "unisono-kernels",
        "unisono-shared-memory",
        "unisono-double-common",
        "xtask",
        "unisono-lab",
        "unisono-double-tests",
    ],
    &["unisono-communicator", "unisono-double-hccl", "unisono-double-nccl"],
    &["unisono-collectives", "unisono-algorithms-cli", "unisono-backend", "unisono-vendor-library"],
    &["unisono-engine", "unisono-control", "unisono-compression", "unisono-offload", "unisono-cuda"],
    &[
        "unisono-job",
        "unisono-compression-cuda",
        "unisono-compression-wgpu",
        "unisono-offload-ccl",
        "unisono-offload-hccl",
        "unisono-offload-nccl",
    ],
    &["unisono-transport-tcp", "unisono-compression-npu"],
    &["unisono"],
    &[
        "unisono-c",
        "unisono-cli",
        "unisono-python",
        "unisono-tests",
        "unisono-benches",
        "unisono-compare",
        "unisono-converge",
    ],
    &["unisono-vendor-tests", "unisono-gpu-check", "unisono-soak"],
];

/// One package of ours.
#[derive(Clone)]
pub(crate) struct Package {
    pub(super) name: String,
    /// Of its manifest, relative to the repository.
    pub(super) path: String,
    pub(super) manifest: String,
    /// Its manifest does not say `publish = false`.
    pub(super) is_published: bool,
    /// The packages of this workspace that its code or its build script uses. Its tests may use any.
    pub(super) uses: Vec<String>,
    /// The names in its code of everything that it uses, in tests too.
    pub(super) dependencies: Vec<String>,
}

impl Package {
    /// Relative to the repository.
    pub(super) fn folder(&self) -> &Path {
        Path::new(&self.path).parent().unwrap_or(Path::new(""))
    }

    /// The last line of its manifest that names this dependency.
    pub(super) fn line_of(&self, dependency: &str) -> usize {
        let lines = (1..).zip(self.manifest.lines()).filter(|(_, line)| line.contains(dependency));
        lines.map(|(number, _)| number).last().unwrap_or(1)
    }

    pub(super) fn violation(&self, line: usize, rule: &'static str, text: String) -> Violation {
        Violation { path: self.path.clone(), line, rule, text }
    }
}

/// The manifests of the other workspaces: of the laboratory, and of the package for Python.
const OTHERS: [&str; 2] = ["benches/lab/Cargo.toml", "crates/unisono-python/Cargo.toml"];

/// Every rule of this file.
///
/// # Errors
/// When a manifest cannot be read.
pub(crate) fn check(packages: &[Package], repository: &Path) -> Result<Vec<Violation>, String> {
    let rules = |package| {
        arrows(package).into_iter().chain(shared_lints(package)).chain(archive(package, repository))
    };
    let read = |path: &str| {
        std::fs::read_to_string(repository.join(path)).map_err(|error| format!("{path}: {error}"))
    };
    let root = read("Cargo.toml")?;
    let others = OTHERS.iter().map(|path| Ok((*path, read(path)?))).collect::<Result<Vec<_>, String>>()?;
    let differing = others.iter().filter_map(|(path, other)| same_settings(&root, path, other));
    Ok(packages.iter().flat_map(rules).chain(differing).collect())
}

/// Finds lints, profiles or a version of a dependency of both in which another workspace differs from the product.
fn same_settings(root: &str, path: &str, other: &str) -> Option<Violation> {
    let settings = |text: &str| text.find("[workspace.lints").map(|start| text[start..].to_owned());
    let versions = |text: &str| -> BTreeSet<String> {
        let list = text.split("[workspace.dependencies]").nth(1).unwrap_or_default();
        let lines = list.lines().take_while(|line| !line.starts_with('['));
        lines.filter(|line| line.contains(" = ")).map(|line| line.replace("../../", "")).collect()
    };
    let root_versions = versions(root);
    let name = |line: &str| line.split(" = ").next().map(str::to_owned);
    let names: BTreeSet<_> = root_versions.iter().map(|line| name(line)).collect();
    let differing =
        versions(other).into_iter().find(|line| !root_versions.contains(line) && names.contains(&name(line)));
    let text = if settings(root) != settings(other) {
        "the lints and profiles are not those of the root".to_owned()
    } else {
        format!("not as in the root: {}", differing?)
    };
    Some(Violation { path: path.to_owned(), line: 1, rule: "workspace", text })
}

/// The names of the packages of the workspace that are not published.
///
/// # Errors
/// When cargo does not say.
pub(crate) fn unpublished(repository: &Path) -> Result<Vec<String>, String> {
    let packages = packages_of(repository, "Cargo.toml")?.into_iter();
    Ok(packages.filter(|package| !package.is_published).map(|package| package.name).collect())
}

/// The packages of all workspaces.
///
/// # Errors
/// When cargo does not say.
pub(crate) fn packages(repository: &Path) -> Result<Vec<Package>, String> {
    let all = std::iter::once("Cargo.toml").chain(OTHERS).map(|manifest| packages_of(repository, manifest));
    Ok(all.collect::<Result<Vec<_>, _>>()?.concat())
}

fn packages_of(repository: &Path, manifest: &str) -> Result<Vec<Package>, String> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path", manifest])
        .current_dir(repository)
        .output()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let list = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    list.iter().map(|package| read_package(package, repository)).collect()
}

fn read_package(package: &Value, repository: &Path) -> Result<Package, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let file = text(&package["manifest_path"]);
    let path = Path::new(&file).strip_prefix(repository).unwrap_or(Path::new(&file));
    let dependencies = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
    // Only packages of this workspace come by path.
    let is_used = |one: &&Value| one["path"].is_string() && one["kind"].as_str() != Some("dev");
    let name_in_code =
        |one: &Value| text(if one["rename"].is_string() { &one["rename"] } else { &one["name"] });
    Ok(Package {
        name: text(&package["name"]),
        path: path.to_string_lossy().into_owned(),
        // `publish = false` is an empty list of registries.
        is_published: package["publish"].as_array().is_none_or(|registries| !registries.is_empty()),
        manifest: std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?,
        uses: dependencies.iter().filter(is_used).map(|one| text(&one["name"])).collect(),
        dependencies: dependencies.iter().map(name_in_code).collect(),
    })
}

fn floor(name: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&name))
}

fn arrows(package: &Package) -> Vec<Violation> {
    let Some(own) = floor(&package.name) else {
        let text = format!("{} has no floor in xtask/src/tidy/workspace.rs", package.name);
        return vec![package.violation(1, "arrows", text)];
    };
    let forbidden = package.uses.iter().filter(|used| floor(used).is_none_or(|floor| floor >= own));
    forbidden
        .map(|used| {
            let text = format!("{} may not use {used}, which is not on a lower floor", package.name);
            package.violation(package.line_of(used), "arrows", text)
        })
        .collect()
}

fn shared_lints(package: &Package) -> Option<Violation> {
    let mut lines = package.manifest.lines().map(str::trim).skip_while(|line| *line != "[lints]").skip(1);
    let shared = lines.next().is_some_and(|line| line.replace(' ', "") == "workspace=true");
    let text = "write [lints] workspace = true".to_owned();
    (!shared).then(|| package.violation(1, "lints", text))
}

/// The texts of the licences, which each archive must hold.
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// Finds a published package whose archive would lack the page for users or the text of a licence.
fn archive(package: &Package, repository: &Path) -> Vec<Violation> {
    if !package.is_published {
        return Vec::new();
    }
    let folder = repository.join(&package.path).with_file_name("");
    let is_like_ours = |name: &&str| {
        let ours = std::fs::read(repository.join(name));
        ours.is_ok_and(|ours| std::fs::read(folder.join(name)).is_ok_and(|text| text == ours))
    };
    let has_readme = package.manifest.lines().any(|line| line.replace(' ', "") == "readme.workspace=true");
    let readme = (!has_readme).then(|| "write readme.workspace = true, or publish = false".to_owned());
    let missing = LICENCES.iter().filter(|name| !is_like_ours(name));
    let licences = missing.map(|name| format!("link {name} of the repository into the package's folder"));
    readme.into_iter().chain(licences).map(|text| package.violation(1, "archive", text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, manifest: &str, uses: &[&str]) -> Package {
        let uses = uses.iter().map(|&name| name.to_owned()).collect();
        let (path, manifest) = ("Cargo.toml".to_owned(), manifest.to_owned());
        Package { name: name.to_owned(), path, manifest, is_published: true, uses, dependencies: Vec::new() }
    }

    #[test]
    fn an_arrow_against_the_order_is_found() {
        let manifest = "[package]\n[dependencies]\nunisono-engine.workspace = true\n";
        let found = arrows(&package("unisono-schedule", manifest, &["unisono-engine"]));
        assert_eq!(found.iter().map(|one| (one.line, one.rule)).collect::<Vec<_>>(), [(3, "arrows")]);
        assert_eq!(arrows(&package("unisono-transport-tcp", manifest, &["unisono-engine"])), []);
    }

    #[test]
    fn a_package_without_a_floor_is_found() {
        assert_eq!(arrows(&package("unisono-new", "", &[])).len(), 1);
    }

    #[test]
    fn a_package_with_its_own_lints_is_found() {
        assert!(shared_lints(&package("x", "[package]\n", &[])).is_some());
        assert!(shared_lints(&package("x", "[lints]\nrust = {}\n", &[])).is_some());
        assert!(shared_lints(&package("x", "[lints]\nworkspace = true\n", &[])).is_none());
    }

    #[test]
    fn other_workspaces_have_the_versions_lints_and_profiles_of_the_root() {
        let root =
            "[workspace.dependencies]\na = { path = \"a\" }\nb = \"1\"\n[workspace.lints.rust]\nx = 1\n";
        let lab = root.replace("b = \"1\"\n", "").replace("\"a\"", "\"../../a\"");
        assert_eq!(same_settings(root, "lab", &lab), None);
        let more = lab.replace("[workspace.lints", "own = \"1\"\n[workspace.lints");
        assert_eq!(same_settings(root, "lab", &more), None, "the root has none, so no version differs");
        for (own, other) in [("x = 1", "x = 2"), ("../../a", "../a")] {
            assert!(same_settings(root, "lab", &lab.replace(own, other)).is_some(), "{other}");
        }
    }

    #[test]
    fn an_archive_without_readme_or_licence_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let found = |package: &Package| archive(package, folder.path()).len();
        let bare = package("x", "[package]\n", &[]);
        assert_eq!(found(&bare), 3);
        LICENCES.iter().for_each(|name| std::fs::write(folder.path().join(name), "text").unwrap());
        assert_eq!(found(&bare), 1);
        assert_eq!(found(&package("x", "readme.workspace = true\n", &[])), 0);
        let elsewhere = Package { path: "crates/x/Cargo.toml".to_owned(), ..package("x", "", &[]) };
        assert_eq!(found(&elsewhere), 3);
        assert_eq!(found(&Package { is_published: false, ..elsewhere }), 0);
    }

    #[test]
    fn a_package_that_says_so_is_not_published() {
        let names = unpublished(crate::repository()).unwrap();
        let is_in = |name: &str| names.iter().any(|one| one == name);
        assert!(["xtask", "unisono-tests", "unisono-double-hccl"].into_iter().all(is_in), "{names:?}");
        assert!(!["unisono", "unisono-cli", "unisono-kernels"].into_iter().any(is_in), "{names:?}");
    }

    #[test]
    fn the_packages_of_this_workspace_are_read() {
        let list = packages(crate::repository()).unwrap();
        let engine = list.iter().find(|package| package.name == "unisono-engine").unwrap();
        assert_eq!(engine.path, "crates/engine/Cargo.toml");
        assert!(engine.uses.contains(&"unisono-schedule".to_owned()), "{:?}", engine.uses);
        assert!(list.iter().any(|package| package.name == "unisono-soak"));
    }
}
