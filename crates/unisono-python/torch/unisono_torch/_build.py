"""Builds the extension module from its sources, for a torch that no prebuilt one fits."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

_SOURCES = Path(__file__).parent / "csrc"


def cached(name: str) -> Path:
    """The module of this name in the user's cache, built if it is not there; other ranks wait meanwhile.

    Raises ImportError without a compiler, and when the compiler refuses the sources.
    """
    import torch

    hashed = hashlib.sha256(torch.__version__.encode())
    for source in sorted(_SOURCES.iterdir()):
        hashed.update(source.read_bytes())
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(home, "unisono", "torch", hashed.hexdigest()[:16])
    built = folder / name
    if built.exists():
        return built
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "lock", "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not built.exists():
                build(built)
    except OSError as error:
        raise ImportError(f"unisono_torch: cannot build a module for torch {torch.__version__}: {error}") from error
    return built


def build(
    target: Path, sources: Path = _SOURCES, include: Path = _SOURCES, root: Path | None = None
) -> None:
    """Compiles the sources into one module, in about half a minute.

    The module is for the torch of this environment, or for the one in the folder `root`, which is only read: the
    libraries that it loads need not be there.
    """
    if root is None:
        import torch

        root, version, new_strings = Path(torch.__path__[0]), torch.__version__, torch.compiled_with_cxx11_abi()
    else:
        # The wheels of torch 2.7 and newer have the strings of C++11.
        version, new_strings = f"in {root}", True
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise ImportError(
            f"unisono_torch: no prebuilt module fits torch {version} and this Python, and there is no C++ "
            f"compiler {compiler!r} to build one; CXX names another"
        )
    systems = [root / "include", root / "include/torch/csrc/api/include", Path(sysconfig.get_paths()["include"])]
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        # One unit: torch's headers are most of the work.
        unit, module = Path(folder, "unit.cpp"), Path(folder, "module.so")
        unit.write_text("".join(f'#include "{path}"\n' for path in sorted(sources.glob("*.cpp"))))
        words: list[str | Path] = [compiler, "-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden"]
        words += ["-Wall", "-Wextra", "-DTORCH_EXTENSION_NAME=_C", "-I", include]
        words += [f"-D_GLIBCXX_USE_CXX11_ABI={int(new_strings)}"]
        words += [word for path in systems for word in ("-isystem", path)]
        words += [unit, "-o", module, "-L", root / "lib", "-Wl,-s", "-Wl,--as-needed"]
        words += ["-ltorch_python", "-ltorch_cpu", "-lc10", "-ltorch"]
        result = subprocess.run(words, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            log = target.with_suffix(".log")
            log.write_text(result.stderr)
            first = next((line for line in result.stderr.splitlines() if "error" in line), result.stderr[-300:])
            raise ImportError(f"unisono_torch: {compiler} cannot build a module for torch {version}: {first}; {log}")
        # Other ranks see the whole module or none.
        os.replace(module, target)
