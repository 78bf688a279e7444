//! Rules over the packages: which may use which, that all share the workspace's lints, and what the archives of the
//! published packages hold.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::source::Violation;

/// What the code of each package may use of the workspace. The command line is a leaf, so it stands in no list.
const ARROWS: &[(&str, &[&str])] = &[
    ("unisono-schedule", &[]),
    ("unisono-communicator", &[SCHEDULE]),
    (COLLECTIVES, &[COMMUNICATOR, SCHEDULE]),
    (ALGORITHMS_CLI, &[COMMUNICATOR, SCHEDULE]),
    ("unisono-backend", &[COMMUNICATOR, SCHEDULE]),
    ("unisono-engine", &[COMMUNICATOR, COLLECTIVES, SCHEDULE, BACKEND]),
    ("unisono-kernels", &[]),
    ("unisono-compression", &[COMMUNICATOR, COLLECTIVES, KERNELS]),
    (COMPRESSION_WGPU, &[COMMUNICATOR, KERNELS, COMPRESSION]),
    (VENDOR_LIBRARY, &[COMMUNICATOR]),
    (OFFLOAD, &[COMMUNICATOR, COLLECTIVES, SCHEDULE, BACKEND]),
    (OFFLOAD_CCL, &[COMMUNICATOR, OFFLOAD, VENDOR_LIBRARY]),
    (OFFLOAD_NCCL, &[COMMUNICATOR, CUDA, KERNELS, OFFLOAD, VENDOR_LIBRARY]),
    (OFFLOAD_HCCL, &[COMMUNICATOR, OFFLOAD, VENDOR_LIBRARY]),
    (CUDA, &[COMMUNICATOR, VENDOR_LIBRARY]),
    (COMPRESSION_CUDA, &[COMMUNICATOR, COMPRESSION, CUDA, KERNELS]),
    (COMPRESSION_NPU, &[COMMUNICATOR, COMPRESSION, KERNELS, OFFLOAD, OFFLOAD_HCCL]),
    (CONTROL, &[COMMUNICATOR, BACKEND]),
    (SHARED_MEMORY, &[]),
    (JOB, &[COMMUNICATOR, BACKEND, ENGINE, CONTROL, SHARED_MEMORY]),
    (TCP, &[COMMUNICATOR, BACKEND, ENGINE, CONTROL, JOB, SHARED_MEMORY]),
    (
        "unisono",
        &[
            ALGORITHMS_CLI,
            COMMUNICATOR,
            COLLECTIVES,
            SCHEDULE,
            BACKEND,
            ENGINE,
            CONTROL,
            JOB,
            TCP,
            KERNELS,
            COMPRESSION,
            COMPRESSION_CUDA,
            COMPRESSION_NPU,
            COMPRESSION_WGPU,
            CUDA,
            OFFLOAD,
            OFFLOAD_CCL,
            OFFLOAD_HCCL,
            OFFLOAD_NCCL,
        ],
    ),
    (
        "unisono-cli",
        &[
            ALGORITHMS_CLI,
            SCHEDULE,
            KERNELS,
            CONTROL,
            JOB,
            TCP,
            OFFLOAD,
            OFFLOAD_CCL,
            OFFLOAD_HCCL,
            OFFLOAD_NCCL,
            "unisono",
        ],
    ),
    (
        "unisono-tests",
        &[
            COMMUNICATOR,
            COLLECTIVES,
            SCHEDULE,
            BACKEND,
            ENGINE,
            KERNELS,
            COMPRESSION,
            CONTROL,
            JOB,
            TCP,
            OFFLOAD,
            OFFLOAD_CCL,
            OFFLOAD_HCCL,
            OFFLOAD_NCCL,
            CUDA,
            "unisono",
            DOUBLE_COMMON,
            DOUBLE_HCCL,
            DOUBLE_NCCL,
        ],
    ),
    (
        "unisono-vendor-tests",
        &[
            COMMUNICATOR,
            COLLECTIVES,
            ENGINE,
            JOB,
            TCP,
            OFFLOAD,
            OFFLOAD_CCL,
            OFFLOAD_HCCL,
            OFFLOAD_NCCL,
            TESTS,
        ],
    ),
    // Doubles of vendors' libraries know nothing of this one.
    (DOUBLE_COMMON, &[]),
    (DOUBLE_HCCL, &[DOUBLE_COMMON]),
    (DOUBLE_NCCL, &[DOUBLE_COMMON]),
    (
        "unisono-benches",
        &[COMMUNICATOR, COLLECTIVES, SCHEDULE, BACKEND, ENGINE, JOB, TCP, OFFLOAD, OFFLOAD_CCL],
    ),
    ("unisono-compare", &[ALGORITHMS_CLI, SCHEDULE, "unisono"]),
    ("unisono-converge", &[ALGORITHMS_CLI, "unisono"]),
    (
        "unisono-gpu-check",
        &[
            COMMUNICATOR,
            COLLECTIVES,
            SCHEDULE,
            COMPRESSION,
            COMPRESSION_CUDA,
            CUDA,
            KERNELS,
            OFFLOAD,
            OFFLOAD_NCCL,
            VENDOR_LIBRARY,
            JOB,
            TCP,
            TESTS,
        ],
    ),
    ("unisono-soak", &["unisono", "unisono-tests", CONTROL, JOB, TCP]),
    ("xtask", &[]),
];

const COLLECTIVES: &str = "unisono-collectives";
const COMMUNICATOR: &str = "unisono-communicator";
const ALGORITHMS_CLI: &str = "unisono-algorithms-cli";
const BACKEND: &str = "unisono-backend";
const SCHEDULE: &str = "unisono-schedule";
const ENGINE: &str = "unisono-engine";
const KERNELS: &str = "unisono-kernels";
const COMPRESSION: &str = "unisono-compression";
const COMPRESSION_CUDA: &str = "unisono-compression-cuda";
const COMPRESSION_NPU: &str = "unisono-compression-npu";
const COMPRESSION_WGPU: &str = "unisono-compression-wgpu";
const DOUBLE_COMMON: &str = "unisono-double-common";
const DOUBLE_HCCL: &str = "unisono-double-hccl";
const DOUBLE_NCCL: &str = "unisono-double-nccl";
const CUDA: &str = "unisono-cuda";
const OFFLOAD: &str = "unisono-offload";
const OFFLOAD_CCL: &str = "unisono-offload-ccl";
const OFFLOAD_HCCL: &str = "unisono-offload-hccl";
const OFFLOAD_NCCL: &str = "unisono-offload-nccl";
const TESTS: &str = "unisono-tests";
const CONTROL: &str = "unisono-control";
const JOB: &str = "unisono-job";
const SHARED_MEMORY: &str = "unisono-shared-memory";
const TCP: &str = "unisono-transport-tcp";
const VENDOR_LIBRARY: &str = "unisono-vendor-library";

/// One package of the workspace.
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

/// Every rule of this file.
pub(crate) fn check(packages: &[Package], repository: &Path) -> Vec<Violation> {
    let rules = |package| {
        arrows(package).into_iter().chain(shared_lints(package)).chain(archive(package, repository))
    };
    packages.iter().flat_map(rules).collect()
}

/// The names of the packages that are not published.
///
/// # Errors
/// When cargo does not say.
pub(crate) fn unpublished(repository: &Path) -> Result<Vec<String>, String> {
    let packages = packages(repository)?.into_iter();
    Ok(packages.filter(|package| !package.is_published).map(|package| package.name).collect())
}

/// The packages of the workspace.
///
/// # Errors
/// When cargo does not say.
pub(crate) fn packages(repository: &Path) -> Result<Vec<Package>, String> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1"])
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

fn arrows(package: &Package) -> Vec<Violation> {
    let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == package.name) else {
        let text = format!("{} has no row in xtask's table of who may use whom", package.name);
        return vec![package.violation(1, "arrows", text)];
    };
    let forbidden = package.uses.iter().filter(|used| !allowed.contains(&used.as_str()));
    forbidden
        .map(|used| {
            package.violation(package.line_of(used), "arrows", format!("{} may not use {used}", package.name))
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
    fn nobody_may_use_the_command_line() {
        for (name, _) in ARROWS {
            assert_eq!(arrows(&package(name, "", &["unisono-cli"])).len(), 1, "{name}");
        }
    }

    #[test]
    fn a_package_without_a_row_is_found() {
        assert_eq!(arrows(&package("unisono-new", "", &[])).len(), 1);
    }

    #[test]
    fn a_package_with_its_own_lints_is_found() {
        assert!(shared_lints(&package("x", "[package]\n", &[])).is_some());
        assert!(shared_lints(&package("x", "[lints]\nrust = {}\n", &[])).is_some());
        assert!(shared_lints(&package("x", "[lints]\nworkspace = true\n", &[])).is_none());
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
        assert!(["xtask", TESTS, DOUBLE_HCCL].into_iter().all(is_in), "{names:?}");
        assert!(!["unisono", "unisono-cli", KERNELS].into_iter().any(is_in), "{names:?}");
    }

    #[test]
    fn the_packages_of_this_workspace_are_read() {
        let list = packages(crate::repository()).unwrap();
        let engine = list.iter().find(|package| package.name == "unisono-engine").unwrap();
        assert_eq!(engine.path, "crates/engine/Cargo.toml");
        assert!(engine.uses.contains(&"unisono-schedule".to_owned()), "{:?}", engine.uses);
    }
}
