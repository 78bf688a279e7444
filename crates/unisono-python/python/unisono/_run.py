"""`unisono.run`: a function on ranks that are processes of their own, for notebooks and tests."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ._errors import Aborted, PeerLost
from ._program import path

WORK = "work.pickle"


def pickler() -> Any:
    """The module that writes pickles: cloudpickle, whose pickles have functions of notebooks, where it is installed."""
    try:
        return importlib.import_module("cloudpickle")
    except ImportError:
        return pickle


def run(ranks: int, function: Callable[..., Any], *arguments: Any, timeout: float | None = None) -> list[Any]:
    """Runs `function(world, *arguments)` on so many ranks, each a new process, and gives their results in rank order.

    Function, arguments and results travel as pickles: with cloudpickle, where it is installed, functions of a notebook
    and of a script too. What the ranks print is printed here, with the rank in front. `timeout` in seconds ends the job.

    Raises RunFailed when a rank fails: `errors` has the exception of each rank that raised one.

    >>> def mean(world, value):
    ...     x = np.full(1, value * world.rank)
    ...     return float(world.all_reduce(x, un.AVG)[0])
    >>> un.run(2, mean, 4.0)
    [2.0, 2.0]
    """
    if pickler() is pickle and getattr(function, "__module__", None) == "__main__":
        raise ImportError(f"{function!r} is of a notebook or a script, which needs the package cloudpickle")
    with tempfile.TemporaryDirectory(prefix="unisono-run-") as name:
        folder = Path(name)
        with open(folder / WORK, "wb") as file:
            # First the folders in which the ranks look for the function's module.
            pickle.dump(sys.path, file)
            pickler().dump((function, arguments), file)
        options = [] if timeout is None else ["--timeout", str(timeout)]
        command = [path(), "run", "-n", str(ranks), *options, "--", sys.executable, "-m", "unisono._rank", name]
        # A notebook shows sys.stdout, which is not this process's standard output.
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8", errors="replace"
        ) as job:
            assert job.stdout is not None
            try:
                for line in job.stdout:
                    sys.stdout.write(line)
            except BaseException:
                # Ctrl-C: the program ends its ranks together.
                job.terminate()
                raise
            status = job.wait()
        outcomes = [_outcome(folder / str(rank)) for rank in range(ranks)]
    errors = {rank: error for rank, (error, _) in enumerate(outcomes) if error is not None}
    if status != 0 or errors:
        raise RunFailed(status, errors)
    return [result for _, result in outcomes]


class RunFailed(Exception):
    """A job of `unisono.run` failed. `status` is the program's, `errors` has the exception of each rank that raised."""

    def __init__(self, status: int, errors: dict[int, BaseException]) -> None:
        own = [f"rank {rank}: {type(error).__name__}: {error}" for rank, error in errors.items()]
        super().__init__("; ".join(own) or f"the job ended with status {status}")
        self.status = status
        self.errors = errors
        self.__cause__ = next((error for error in errors.values() if not is_consequence(error)), None)


RunFailed.__module__ = "unisono"


def is_consequence(error: BaseException) -> bool:
    """Whether another rank's failure is the cause of this one."""
    return isinstance(error, (Aborted, PeerLost))


def _outcome(file: Path) -> tuple[BaseException | None, Any]:
    if not file.exists():
        return None, None
    outcome: tuple[BaseException | None, Any] = pickle.loads(file.read_bytes())
    return outcome
