//! Rules over the packages: which may use which, and that all share the workspace's lints.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::source::Violation;

/// What each package may use of the workspace. The command line is a leaf, so it stands in no list.
const ARROWS: &[(&str, &[&str])] = &[
    ("unisono-schedule", &[]),
    ("unisono-communicator", &[SCHEDULE]),
    ("unisono-backend", &[COMMUNICATOR, SCHEDULE]),
    ("unisono-engine", &[COMMUNICATOR, SCHEDULE, BACKEND]),
    // Its tests use its own feature `testing`.
    ("unisono-kernels", &[KERNELS]),
    // The engine is there for its tests.
    ("unisono-compression", &[COMMUNICATOR, KERNELS, ENGINE]),
    // Its tests make worlds, and use the inputs of the kernels' tests.
    (COMPRESSION_WGPU, &[COMMUNICATOR, KERNELS, COMPRESSION, ENGINE, TESTS]),
    ("unisono-vendor-library", &[COMMUNICATOR, TESTS]),
    // The test double of a library is for its example.
    (OFFLOAD, &[COMMUNICATOR, SCHEDULE, BACKEND, TESTS]),
    (OFFLOAD_CCL, &[COMMUNICATOR, OFFLOAD, VENDOR_LIBRARY, TESTS]),
    (OFFLOAD_NCCL, &[COMMUNICATOR, CUDA, KERNELS, OFFLOAD, VENDOR_LIBRARY, TESTS]),
    (OFFLOAD_HCCL, &[COMMUNICATOR, OFFLOAD, VENDOR_LIBRARY, TESTS]),
    ("unisono-cuda", &[COMMUNICATOR, VENDOR_LIBRARY, TESTS]),
    ("unisono-compression-cuda", &[COMMUNICATOR, COMPRESSION, CUDA, ENGINE, KERNELS, TESTS]),
    (COMPRESSION_NPU, &[COMMUNICATOR, COMPRESSION, ENGINE, KERNELS, OFFLOAD, OFFLOAD_HCCL, TESTS]),
    ("unisono-control", &[COMMUNICATOR, SCHEDULE, BACKEND, ENGINE]),
    (SHARED_MEMORY, &[]),
    // Its tests run whole jobs, which need a transport.
    ("unisono-job", &[COMMUNICATOR, SCHEDULE, BACKEND, ENGINE, CONTROL, SHARED_MEMORY, SHM]),
    ("unisono-transport-tcp", &[COMMUNICATOR, SCHEDULE, BACKEND, ENGINE, CONTROL, JOB]),
    (SHM, &[COMMUNICATOR, BACKEND, ENGINE, CONTROL, JOB, SHARED_MEMORY, TCP]),
    (
        "unisono",
        &[
            COMMUNICATOR,
            SCHEDULE,
            BACKEND,
            ENGINE,
            CONTROL,
            JOB,
            TCP,
            SHM,
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
            COMMUNICATOR,
            SCHEDULE,
            KERNELS,
            CONTROL,
            JOB,
            TCP,
            SHM,
            OFFLOAD,
            OFFLOAD_CCL,
            OFFLOAD_HCCL,
            OFFLOAD_NCCL,
            "unisono",
            TESTS,
        ],
    ),
    (
        "unisono-tests",
        &[
            COMMUNICATOR,
            SCHEDULE,
            BACKEND,
            ENGINE,
            KERNELS,
            COMPRESSION,
            CONTROL,
            JOB,
            TCP,
            SHM,
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
            BACKEND,
            ENGINE,
            KERNELS,
            COMPRESSION,
            COMPRESSION_CUDA,
            COMPRESSION_NPU,
            CONTROL,
            JOB,
            TCP,
            OFFLOAD,
            OFFLOAD_CCL,
            OFFLOAD_HCCL,
            OFFLOAD_NCCL,
            CUDA,
            "unisono",
            TESTS,
        ],
    ),
    // Doubles of vendors' libraries know nothing of this one.
    (DOUBLE_COMMON, &[]),
    (DOUBLE_HCCL, &[DOUBLE_COMMON]),
    (DOUBLE_NCCL, &[DOUBLE_COMMON]),
    ("unisono-benches", LIBRARIES),
    ("unisono-compare", &["unisono"]),
    ("unisono-converge", &["unisono"]),
    (
        "unisono-gpu-check",
        &[
            COMMUNICATOR,
            SCHEDULE,
            COMPRESSION,
            COMPRESSION_CUDA,
            CUDA,
            KERNELS,
            OFFLOAD,
            OFFLOAD_NCCL,
            VENDOR_LIBRARY,
            CONTROL,
            JOB,
            TCP,
            SHM,
            TESTS,
        ],
    ),
    ("unisono-soak", &["unisono", "unisono-tests", CONTROL, JOB, TCP, SHM]),
    ("xtask", LIBRARIES),
];

const COMMUNICATOR: &str = "unisono-communicator";
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
const SHM: &str = "unisono-transport-shm";
const TCP: &str = "unisono-transport-tcp";
const VENDOR_LIBRARY: &str = "unisono-vendor-library";
const LIBRARIES: &[&str] = &[
    COMMUNICATOR,
    SCHEDULE,
    BACKEND,
    ENGINE,
    KERNELS,
    COMPRESSION,
    CONTROL,
    JOB,
    TCP,
    SHM,
    OFFLOAD,
    OFFLOAD_CCL,
    "unisono",
];

/// One package of the workspace.
struct Package {
    name: String,
    /// Of its manifest, relative to the repository.
    path: String,
    manifest: String,
    /// The packages of this workspace that it uses, in code, tests or build scripts.
    uses: Vec<String>,
}

/// Every rule of this file.
pub(crate) fn check(repository: &Path) -> Result<Vec<Violation>, String> {
    let packages = packages(repository)?;
    Ok(packages.iter().flat_map(|package| arrows(package).into_iter().chain(shared_lints(package))).collect())
}

fn packages(repository: &Path) -> Result<Vec<Package>, String> {
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
    let own = dependencies.iter().filter(|dependency| dependency["path"].is_string());
    Ok(Package {
        name: text(&package["name"]),
        path: path.to_string_lossy().into_owned(),
        manifest: std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?,
        uses: own.map(|dependency| text(&dependency["name"])).collect(),
    })
}

fn violation(package: &Package, line: usize, rule: &'static str, text: String) -> Violation {
    Violation { path: package.path.clone(), line, rule, text }
}

fn arrows(package: &Package) -> Vec<Violation> {
    let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == package.name) else {
        let text = format!("{} has no row in xtask's table of who may use whom", package.name);
        return vec![violation(package, 1, "arrows", text)];
    };
    let line_of = |used: &str| {
        let lines = (1..).zip(package.manifest.lines());
        lines.filter(|(_, line)| line.contains(used)).map(|(number, _)| number).last().unwrap_or(1)
    };
    let forbidden = package.uses.iter().filter(|used| !allowed.contains(&used.as_str()));
    forbidden
        .map(|used| {
            violation(package, line_of(used), "arrows", format!("{} may not use {used}", package.name))
        })
        .collect()
}

fn shared_lints(package: &Package) -> Option<Violation> {
    let mut lines = package.manifest.lines().map(str::trim).skip_while(|line| *line != "[lints]").skip(1);
    let shared = lines.next().is_some_and(|line| line.replace(' ', "") == "workspace=true");
    let text = "write [lints] workspace = true".to_owned();
    (!shared).then(|| violation(package, 1, "lints", text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, manifest: &str, uses: &[&str]) -> Package {
        let uses = uses.iter().map(|&name| name.to_owned()).collect();
        Package { name: name.to_owned(), path: "Cargo.toml".to_owned(), manifest: manifest.to_owned(), uses }
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
    fn the_packages_of_this_workspace_are_read() {
        let list = packages(crate::repository()).unwrap();
        let engine = list.iter().find(|package| package.name == "unisono-engine").unwrap();
        assert_eq!(engine.path, "crates/engine/Cargo.toml");
        assert!(engine.uses.contains(&"unisono-schedule".to_owned()), "{:?}", engine.uses);
    }
}
