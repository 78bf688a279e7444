"""`cargo xtask torch build | test | compare`: the wheel of this package, its tests, and its figures beside Gloo's.

The Python that runs this file has torch. It stays as it is: tests and figures have an environment of their own in the
target folder, which takes torch from this one.
"""

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
REPOSITORY = PACKAGE.parents[2]
HEADER = REPOSITORY / "crates/unisono-c/unisono.h"
COMPARISON = REPOSITORY / "benches/lab/torch/compare.py"
OUT = REPOSITORY / os.environ.get("CARGO_TARGET_DIR", "target") / "torch"
# The package as its wheel has it.
STAGED = OUT / "package"
ENVIRONMENT = OUT / "environment"
RANKS = 4
# The tests need these beside torch.
TEST_PACKAGES = ["numpy", "pytest"]
# A run of tests that takes longer hangs.
TESTS_MAX_S = 1800

# Each rank asks for the module; one builds it.
CACHED_BUILD = """
import sys
import torch.distributed as dist
from unisono_torch import _library
assert not (_library._FOLDER / "shims").exists()
dist.init_process_group("unisono")
print("BUILT", sys.modules["unisono_torch._library"]._shim(), flush=True)
dist.destroy_process_group()
"""


def run(*words, timeout_s=None, **options):
    """Runs a command, which must succeed."""
    result = subprocess.run([str(word) for word in words], timeout=timeout_s, check=False, **options)
    if result.returncode != 0:
        raise SystemExit(f"torch: {' '.join(map(str, words[:6]))}: status {result.returncode}")
    return result


def pip(python, *words):
    run(python, "-m", "pip", "--quiet", "--disable-pip-version-check", *words)


def fresh(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def check_version():
    """The version is the workspace's, here and in the dependency on the package with the library."""
    workspace = tomllib.loads((REPOSITORY / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    if project["version"] != workspace or f"unisono=={workspace}" not in project["dependencies"]:
        raise SystemExit(f"torch: pyproject.toml has not the workspace's version, {workspace}, twice")


def stage():
    """The package without shims: its files, and the header that its sources include."""
    check_version()
    shutil.rmtree(STAGED, ignore_errors=True)
    ignored = shutil.ignore_patterns("shims", "__pycache__")
    shutil.copytree(PACKAGE / "unisono_torch", STAGED / "unisono_torch", ignore=ignored)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(PACKAGE / name, STAGED)
    shutil.copy(HEADER, STAGED / "unisono_torch/csrc")


def staged(name):
    """A module of the package, without the package's own dependencies."""
    spec = importlib.util.spec_from_file_location(f"unisono_torch.{name}", STAGED / f"unisono_torch/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shim_name(version):
    """As `unisono_torch._library.shim_name`, for a torch that need not be importable."""
    return f"torch-{'.'.join(version.split('.')[:2])}.{sysconfig.get_config_var('SOABI')}.so"


def minor_before(version):
    """The folder of the newest torch of the minor before this one, from the registry, and its version."""
    major, minor = map(int, version.split(".")[:2])
    folder = OUT / f"torch-{major}.{minor - 1}"
    if not (folder / "complete").exists():
        # Headers and libraries to link with; not the gigabytes that it needs to run.
        pip(sys.executable, "install", "--no-deps", "--target", fresh(folder), f"torch=={major}.{minor - 1}.*")
        (folder / "complete").touch()
    return folder / "torch", f"{major}.{minor - 1}"


def shims_of_two_minors():
    """Prebuilt modules for the torch of this environment and for the minor before it."""
    import torch

    shims = fresh(STAGED / "unisono_torch/shims")
    build = staged("_build").build
    before, version = minor_before(torch.__version__)
    for root, of in ((None, torch.__version__), (before, version)):
        print(f"torch: a module for torch {of}", flush=True)
        build(shims / shim_name(of), root=root)


def wheel(folder):
    """The wheel of the staged package, alone in its folder."""
    wheels = fresh(OUT / "wheels" / folder)
    # torch itself needs a setuptools that is new enough, so nothing is fetched.
    pip(sys.executable, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, STAGED)
    [made] = wheels.iterdir()
    names = zipfile.ZipFile(made).namelist()
    expected = {str(path.relative_to(STAGED)) for path in (STAGED / "unisono_torch").rglob("*") if path.is_file()}
    missing = {name for name in expected if "__pycache__" not in name} - set(names)
    if missing or not re.fullmatch(r"unisono_torch-.*-py3-none-linux_x86_64\.whl", made.name):
        raise SystemExit(f"torch: {made.name} lacks {sorted(missing)}")
    return made


def unisono_wheel(options, *profile):
    """The wheel of the package with the library."""
    if options.unisono:
        return options.unisono
    command = ["cargo", "xtask", "python", "build", *profile]
    return run(*command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]


def environment():
    """Makes an environment with the torch of this one."""
    run(sys.executable, "-m", "venv", "--clear", ENVIRONMENT)
    python = ENVIRONMENT / "bin/python"
    paths = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    [own] = (ENVIRONMENT / "lib").glob("python*/site-packages")
    (own / "torch.pth").write_text("".join(f"{path}\n" for path in paths))
    absent = [name for name in TEST_PACKAGES if importlib.util.find_spec(name) is None]
    if absent:
        pip(python, "install", *absent)
    return python


def variables(**more):
    """The variables of programs of the environment, which see the installed package and no sources."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    path = f"{ENVIRONMENT / 'bin'}:{os.environ['PATH']}"
    return kept | {"PATH": path, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"} | more


def cached_build(launcher):
    """Several ranks of a package without a module want one at once: the path of the module that they have built."""
    cache = fresh(OUT / "cache")
    program = OUT / "cached_build.py"
    program.write_text(CACHED_BUILD)
    environment_ = variables(PYTHONPATH=str(STAGED), XDG_CACHE_HOME=str(cache))
    command = [*launcher, "python", program]
    printed = run(*command, env=environment_, timeout_s=600, stdout=subprocess.PIPE, text=True).stdout
    built = {line.partition("BUILT ")[2] for line in printed.splitlines() if "BUILT " in line}
    modules = list(cache.rglob("*.so"))
    if built != set(map(str, modules)) or len(modules) != 1 or printed.count("BUILT ") != RANKS:
        raise SystemExit(f"torch: the ranks have not built one module: {printed}")
    return modules[0]


def command_build(options):
    unisono = unisono_wheel(options)
    stage()
    shims_of_two_minors()
    print(unisono, wheel("dist"), sep="\n")


def command_test(options):
    stage()
    python = environment()
    pip(python, "install", "--no-deps", unisono_wheel(options, "--debug"))
    launcher = [ENVIRONMENT / "bin/unisono", "run", "-n", RANKS, "--"]
    module = cached_build(launcher)
    # The wheel's prebuilt module: as the one that the ranks have built.
    shutil.copy(module, fresh(STAGED / "unisono_torch/shims"))
    pip(python, "install", "--no-deps", wheel("tested"))
    tests = {"cwd": PACKAGE / "tests", "env": variables(XDG_CACHE_HOME=str(fresh(OUT / "cache")))}
    pytest = ["python", "-m", "pytest", "-q"]
    run(*launcher, *pytest, "ranks", *options.rest, timeout_s=TESTS_MAX_S, **tests)
    run(python, *pytest[1:], "alone", *options.rest, timeout_s=TESTS_MAX_S, **tests)
    if any((OUT / "cache").rglob("*.so")):
        raise SystemExit("torch: the tests have built a module, although the wheel has one")


def command_compare(options):
    if {"--help", "-h"} & set(options.rest):
        run(sys.executable, COMPARISON, *options.rest)
        return
    unisono = unisono_wheel(options)
    stage()
    fresh(STAGED / "unisono_torch/shims")
    import torch

    staged("_build").build(STAGED / "unisono_torch/shims" / shim_name(torch.__version__))
    python = environment()
    pip(python, "install", "--no-deps", unisono, wheel("measured"))
    run(python, COMPARISON, OUT, *options.rest, env=variables())


COMMANDS = {"build": command_build, "test": command_test, "compare": command_compare}


def main():
    parser = argparse.ArgumentParser(prog="cargo xtask torch", description=__doc__, add_help=False)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--unisono", type=Path, help="the wheel of unisono, which is built otherwise")
    options, options.rest = parser.parse_known_args()
    if importlib.util.find_spec("torch") is None:
        reason = f"{sys.executable} has no torch: activate an environment that has"
        if options.command == "test" and "torch" not in os.environ.get("UNISONO_REQUIRE", "").split(","):
            print(f"SKIP torch: {reason}")
            return
        raise SystemExit(f"torch: {reason}")
    COMMANDS[options.command](options)


main()
