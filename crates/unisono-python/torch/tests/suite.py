"""torch's own suite of a backend, DistributedTest, on Gloo and on unisono: a table, and the tests that differ.

    python tests/suite.py --ranks 3 [--column gloo --column unisono] [--test all_reduce]

The suite is part of torch's wheel. Many of its tests run only on a backend of the name "gloo", so unisono takes part
twice: under that name, and under its own. The status is 0 when no test fails on unisono that passes on Gloo.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

GLOO, AS_GLOO, OWN = COLUMNS = ("gloo", "unisono-as-gloo", "unisono")

# Tests that read what only Gloo writes.
OF_GLOO = {
    "test_ddp_logging_data_cpu": "wants the name of a backend of torch itself in the log of DDP, which has \"custom\"",
}

PASS, FAIL, SKIP = "pass", "FAIL", "skip"

# torch ends a test after 300 s. A column that takes longer than this hangs.
COLUMN_SECONDS_MAX = 3000


class Results(unittest.TestResult):
    """The outcome of each test, and the reason of one that does not pass."""

    def __init__(self, is_verbose: bool) -> None:
        super().__init__()
        self.outcomes: dict[str, tuple[str, str]] = {}
        self._is_verbose = is_verbose
        self._start_s = 0.0

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._start_s = time.monotonic()
        print(f"=== {test.id()}", flush=True)

    def _note(self, test: unittest.TestCase, outcome: str, reason: str = "") -> None:
        name = test.id().rsplit(".", 1)[-1]
        # A failure at the end of a test stays.
        if self.outcomes.get(name, ("",))[0] != FAIL:
            self.outcomes[name] = (outcome, reason)
        if self._is_verbose:
            print(f"{time.monotonic() - self._start_s:6.1f} s {outcome} {name}", file=sys.stderr, flush=True)

    def addSuccess(self, test: unittest.TestCase) -> None:
        self._note(test, PASS)

    def addFailure(self, test: unittest.TestCase, err: object) -> None:
        self._note(test, FAIL, self._exc_info_to_string(err, test))

    addError = addFailure

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._note(test, SKIP, reason)


def run_column(column: str, ranks: int, part: str, target: Path, is_verbose: bool) -> None:
    """Runs the suite on one backend, in this process and forked ones."""
    os.environ["BACKEND"] = "gloo" if column == AS_GLOO else column
    os.environ["WORLD_SIZE"] = str(ranks)
    import torch
    from torch.testing._internal import common_distributed

    if column != GLOO:
        import unisono_torch
        from unisono_torch import _library

        module = _library.load()
    if column == AS_GLOO:
        unisono_torch.register("gloo")
        module.set_backend_name("gloo")
    if column == OWN:
        # The suite asks these sets whether a backend has a feature.
        for feature in ("ddp", "subgroup", "plugin"):
            common_distributed.DistTestCases.backend_feature[feature].add(OWN)
    from torch.testing._internal.distributed import distributed_test as suite

    if column == OWN:
        suite.PROFILING_SUPPORTED_BACKENDS.append(OWN)
        suite.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.append(OWN)

    class Forked(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
        def setUp(self) -> None:
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    names = unittest.TestLoader().getTestCaseNames(Forked)
    results = Results(is_verbose)
    unittest.TestSuite(Forked(name) for name in names if part in name).run(results)
    target.write_text(json.dumps(results.outcomes))


def column_of(column: str, arguments: argparse.Namespace, folder: Path) -> dict[str, tuple[str, str]]:
    """The outcomes of a column, which a process of its own runs."""
    target = folder / f"{column}.json"
    target.unlink(missing_ok=True)
    log = folder / f"{column}.log"
    command = [sys.executable, str(Path(__file__).resolve()), "--ranks", str(arguments.ranks), "--test", arguments.test]
    command += ["--write", str(target), "--column", column, *["--verbose"] * arguments.verbose]
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    with log.open("wb") as output:
        errors = None if arguments.verbose else subprocess.STDOUT
        process = subprocess.Popen(command, stdout=output, stderr=errors, start_new_session=True, env=environment)
        try:
            process.wait(COLUMN_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            pass
        finally:
            # Ranks of a test that has failed may live on.
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    if not target.exists():
        raise SystemExit(f"{column} has not ended:\n{log.read_text(errors='replace')[-5000:]}")
    return {name: (outcome, reason) for name, (outcome, reason) in json.loads(target.read_text()).items()}


def print_table(columns: dict[str, dict[str, tuple[str, str]]], ranks: int) -> None:
    print(f"torch's DistributedTest, {ranks} ranks, fork")
    print(f"{'backend':<34} {'tests':>6} {'pass':>6} {'FAIL':>6} {'skip':>6}")
    labels = {GLOO: "gloo", AS_GLOO: "unisono, registered as gloo", OWN: "unisono, under its own name"}
    for column, outcomes in columns.items():
        counts = [sum(outcome == kind for outcome, _ in outcomes.values()) for kind in (PASS, FAIL, SKIP)]
        print(f"{labels[column]:<34} {len(outcomes):>6} " + " ".join(f"{count:>6}" for count in counts))


def print_reasons(columns: dict[str, dict[str, tuple[str, str]]]) -> None:
    """Every failure, and the tests that differ from Gloo's."""
    gloo = columns.get(GLOO, {})
    for column, outcomes in columns.items():
        by_reason: dict[tuple[str, str, str], list[str]] = {}
        for name, (outcome, reason) in outcomes.items():
            of_gloo = gloo.get(name, ("not run", ""))[0]
            if outcome == FAIL:
                print(f"\n{column}: FAIL {name} (gloo: {of_gloo})\n{reason[-2000:]}")
            elif gloo and outcome != of_gloo:
                by_reason.setdefault((of_gloo, outcome, reason), []).append(name)
        for (of_gloo, outcome, reason), names in by_reason.items():
            print(f"\n{column}: {outcome}, gloo: {of_gloo}, {len(names)} tests: {reason}\n  " + "\n  ".join(names))


def faults(columns: dict[str, dict[str, tuple[str, str]]]) -> list[str]:
    """Tests that fail on unisono and do not on Gloo, and those that unisono passes no more."""
    gloo = columns.get(GLOO, {})
    found = []
    for column, outcomes in columns.items():
        for name, (outcome, _) in outcomes.items():
            if column == GLOO or name in OF_GLOO:
                continue
            of_gloo = gloo.get(name, (PASS, ""))[0]
            if (outcome == FAIL and of_gloo != FAIL) or (column == AS_GLOO and of_gloo == PASS != outcome):
                found.append(f"{column}: {name}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--column", action="append", choices=COLUMNS, help="one backend, or several; else all")
    parser.add_argument("--test", default="", help="only tests whose name has this part")
    parser.add_argument("--verbose", action="store_true", help="each test as it ends, on stderr")
    parser.add_argument("--logs", type=Path, help="a folder for the output of the ranks")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    wanted = arguments.column or list(COLUMNS)
    if arguments.write is not None:
        run_column(wanted[0], arguments.ranks, arguments.test, arguments.write, arguments.verbose)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        logs = Path(folder) if arguments.logs is None else arguments.logs.resolve()
        columns = {column: column_of(column, arguments, logs) for column in wanted}
    if not any(columns.values()):
        raise SystemExit(f"no test has {arguments.test!r} in its name")
    print_table(columns, arguments.ranks)
    print_reasons(columns)
    for name, reason in OF_GLOO.items():
        print(f"\n{name} may differ: it {reason}")
    found = faults(columns)
    if found:
        print("\nfaults:\n  " + "\n  ".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
