"""`cargo xtask torch compare`: torch.distributed on unisono beside torch's own Gloo.

Each round starts every system once with torchrun, in a rotating order. The tables show our time of a call, and Gloo's
time divided by ours in the same round, each as the median of the rounds with the least and the most. Gloo has TCP
alone, so both of our forms are beside the same one. `ranks.py` checks the results.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path

RANKS = Path(__file__).with_name("ranks.py")
GLOO = "gloo"
# The backend of each system, and its settings.
SYSTEMS = {
    GLOO: (GLOO, {}),
    "memory": ("unisono", {"UNISONO_SHM": "1"}),
    "TCP": ("unisono", {"UNISONO_SHM": "0"}),
}
OURS = [system for system in SYSTEMS if system != GLOO]
RUN_MAX_S = 600


def one_run(system, ranks, seconds, settings):
    """One run of a system: the times of the cells, and the counts."""
    backend, own = SYSTEMS[system]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | own | settings
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", str(RANKS), backend, str(seconds)]
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=RUN_MAX_S)
    lines = [line.partition("TIMES ")[2] for line in run.stdout.splitlines() if "TIMES " in line]
    problem = f"{system}, {ranks} ranks: status {run.returncode}"
    if len(lines) != 1 or run.returncode != 0 and backend != GLOO:
        raise SystemExit(f"{problem}\n{run.stdout}")
    if run.returncode != 0:
        # Gloo has measured and checked all, and sometimes aborts at the end of its process.
        print(problem, file=sys.stderr)
    return json.loads(lines[0])


def figure(value):
    digits = 2 - min(2, max(0, int(math.log10(value)))) if value > 0 else 0
    return f"{value:.{digits}f}"


def spread(microseconds):
    """The median, the least and the most."""
    scale, unit = (1, "us") if statistics.median(microseconds) < 1000 else (1000, "ms")
    median, least, most = (figure(f(microseconds) / scale) for f in (statistics.median, min, max))
    return f"{median} {unit} [{least}, {most}]"


def ratio(gloo, ours):
    """Gloo's time divided by ours."""
    ratios = [theirs / own for theirs, own in zip(gloo, ours)]
    return f"{statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]"


def rows(head, lines):
    """Markdown."""
    return "\n".join(["| " + " | ".join(line) + " |" for line in [head, ["---"] + ["---:"] * (len(head) - 1), *lines]])


def times_table(ranks, rounds):
    head = [f"{ranks} ranks", *(text for system in OURS for text in (f"ours, {system}", "Gloo / ours"))]
    lines = []
    for cell in rounds[0][GLOO]["times"]:
        by = {system: [round_[system]["times"][cell] for round_ in rounds] for system in SYSTEMS}
        lines.append([cell, *(text for system in OURS for text in (spread(by[system]), ratio(by[GLOO], by[system])))])
    return rows(head, lines)


def counts_table(ranks, rounds):
    """The counts of the last round."""
    head = [f"{ranks} ranks", *(f"ours, {system}" for system in OURS), "Gloo"]
    last = rounds[-1]
    shown = [*OURS, GLOO]
    return rows(head, [[cell, *(str(last[system]["counts"][cell]) for system in shown)] for cell in last[GLOO]["counts"]])


def main():
    parser = argparse.ArgumentParser(prog="cargo xtask torch compare", description=__doc__)
    parser.add_argument("folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=7, help="(7)")
    parser.add_argument("--ranks", default="2,4", help="numbers of ranks (2,4)")
    parser.add_argument("--seconds", type=float, default=0.3, help="of a cell in a round, about (0.3)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a variable of all ranks")
    options = parser.parse_args()
    settings = dict(text.split("=", 1) for text in options.set)
    measured = {}
    order = list(SYSTEMS)
    for ranks in map(int, options.ranks.split(",")):
        rounds = measured[ranks] = []
        for number in range(options.rounds):
            turn = number % len(order)
            systems = order[turn:] + order[:turn]
            rounds.append({system: one_run(system, ranks, options.seconds, settings) for system in systems})
            load = " ".join(map(str, os.getloadavg()))
            print(f"{ranks} ranks: round {number + 1} of {options.rounds}, load {load}", file=sys.stderr)
        print(times_table(ranks, rounds), counts_table(ranks, rounds), sep="\n\n", end="\n\n", flush=True)
    times_file = options.folder / "torch_times.json"
    times_file.write_text(json.dumps(measured))
    print(f"every time, in microseconds: {times_file}", file=sys.stderr)


main()
