//! `cargo xtask fetch-vendor nvrtc`: what tests need of vendors, from wheels, in `target/vendor`. It is the vendors',
//! and never goes into the repository.

use std::path::Path;
use std::process::Command;

use crate::compare::succeed;

/// What can be fetched, and the wheels that it is made of.
///
/// NVRTC of CUDA 12, because what it makes loads with drivers of CUDA 12 and later; it knows cards up to sm_121.
const WHEELS: &[(&str, &[&str])] =
    &[("nvrtc", &["nvidia-cuda-nvrtc-cu12==12.9.86", "nvidia-cuda-cuobjdump==13.5.37"])];

/// Fetches what `words` name, unless it is there; false when that is not possible.
pub(crate) fn run(repository: &Path, words: &[&str]) -> bool {
    let outcome = match words {
        [name] => WHEELS
            .iter()
            .find(|(own, _)| own == name)
            .ok_or_else(usage)
            .and_then(|(name, wheels)| fetch(&repository.join("target/vendor").join(name), wheels)),
        _ => Err(usage()),
    };
    match outcome {
        Ok(()) => true,
        Err(problem) => {
            println!("fetch-vendor: {problem}");
            false
        }
    }
}

fn usage() -> String {
    let names: Vec<&str> = WHEELS.iter().map(|(name, _)| *name).collect();
    format!("usage: cargo xtask fetch-vendor {}", names.join(" | "))
}

/// Unpacks the wheels in one folder, which has their names when that is done.
fn fetch(folder: &Path, wheels: &[&str]) -> Result<(), String> {
    let (done, names) = (folder.join("wheels"), wheels.join("\n"));
    if std::fs::read_to_string(&done).is_ok_and(|text| text == names) {
        return Ok(());
    }
    let problem = |error: std::io::Error| format!("{}: {error}", folder.display());
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(problem)?;
    }
    std::fs::create_dir_all(folder).map_err(problem)?;
    let pip =
        ["-m", "pip", "install", "--no-deps", "--no-cache-dir", "--quiet", "--disable-pip-version-check"];
    let mut command = Command::new("python3");
    // As root pip warns of the environment that it does not touch.
    command.args(pip).args(["--root-user-action", "ignore", "--target"]).arg(folder).args(wheels);
    succeed(&mut command)?;
    std::fs::write(done, names).map_err(problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_has_is_refused() {
        for words in [&[][..], &["nothing"], &["nvrtc", "nvrtc"]] {
            assert!(!run(Path::new("/nowhere"), words), "{words:?}");
        }
    }
}
