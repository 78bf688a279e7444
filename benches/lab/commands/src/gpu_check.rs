//! `cargo xtask gpu-check`: builds one program that checks and measures the CUDA kernels, and NCCL's backend, on a
//! machine with a card, with code for three generations of cards inside, and says how to run it. With options it runs
//! it at once.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspaces::{cargo, lab_cargo, repository, succeed, target_folder};

const PACKAGE: &str = "unisono-gpu-check";

/// The largest that it may become: a file that is easy to carry.
const PROGRAM_BYTES_MAX: u64 = 64 << 20;

/// Builds the program; runs it with `words` if there are any.
pub(crate) fn run(words: &[&str]) -> bool {
    let outcome = build().and_then(|program| {
        if words.is_empty() {
            println!("{}", usage(&program));
            return Ok(());
        }
        // Beside the test doubles, which Cargo has built too.
        succeed(Command::new(built_program()).args(words))
    });
    match outcome {
        Ok(()) => true,
        Err(problem) => {
            println!("gpu-check: {problem}");
            false
        }
    }
}

fn usage(program: &Path) -> String {
    format!(
        "{} runs on x86-64 Linux with glibc 2.34 or later and NVIDIA's driver R525 or later:
    ./{PACKAGE}           checks and measures the kernels, and NCCL if the system finds it; writes gpu-check.json
    ./{PACKAGE} --nccl /path/of/libnccl.so.2    such as that of the wheel nvidia-nccl-cu12
    ./{PACKAGE} --help    options
Here, without a card, the checks run on test doubles: cargo xtask gpu-check --double",
        program.display()
    )
}

/// Its place in Cargo's folder.
fn built_program() -> PathBuf {
    target_folder().join("release").join(PACKAGE)
}

/// Builds the program twice: the first one compiles the kernels, the second one holds them.
fn build() -> Result<PathBuf, String> {
    succeed(cargo("run").args(["--package", "xtask", "--", "fetch-vendor", "nvrtc"]))?;
    let nvrtc = repository().join("target/vendor/nvrtc/libnvrtc.so.12");
    let folder = target_folder().join("gpu-check");
    let (built, program) = (built_program(), folder.join(PACKAGE));
    let build = || {
        let mut command = lab_cargo("build");
        command.args(["--release", "--package", PACKAGE]);
        command
    };
    succeed(build().env_remove("GPU_CHECK_CUBINS"))?;
    succeed(Command::new(&built).arg("--compile-to").arg(&folder).arg("--nvrtc").arg(nvrtc))?;
    succeed(build().env("GPU_CHECK_CUBINS", &folder))?;
    let problem = |error: std::io::Error| format!("{}: {error}", program.display());
    let bytes = std::fs::copy(&built, &program).map_err(problem)?;
    if bytes > PROGRAM_BYTES_MAX {
        return Err(format!("{} has {bytes} bytes, above {PROGRAM_BYTES_MAX}", program.display()));
    }
    println!("{}: {:.1} MiB", program.display(), bytes as f64 / f64::from(1 << 20));
    Ok(program)
}
