"""A rank of `unisono.run`: `python -m unisono._rank FOLDER`."""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from pathlib import Path
from typing import Any

import unisono

from ._run import WORK, is_consequence, pickler


def _write(file: Path, outcome: tuple[BaseException | None, Any]) -> None:
    try:
        outcome_bytes = pickler().dumps(outcome)
    except Exception as problem:  # Any object may refuse to be pickled, in any way.
        error, _ = outcome
        text = f"{type(error).__name__}: {error}" if error else f"the result does not pickle: {problem}"
        outcome_bytes = pickle.dumps((RuntimeError(text), None))
    file.write_bytes(outcome_bytes)


def _be_rank(folder: Path) -> None:
    world = unisono.init()
    file = folder / str(world.rank)
    try:
        with open(folder / WORK, "rb") as work:
            sys.path[:] = pickle.load(work)
            function, arguments = pickle.load(work)
        result = function(world, *arguments)
    except BaseException as error:
        world.abort()
        _write(file, (error, None))
        if not is_consequence(error):
            # From the function on.
            below = error.__traceback__.tb_next if error.__traceback__ else None
            traceback.print_exception(type(error), error, below)
        sys.exit(1)
    _write(file, (None, result))
    world.close()


_be_rank(Path(os.fsdecode(sys.argv[1])))
