"""The program `unisono`, which is in the wheel."""

from __future__ import annotations

import os
import shutil
import sys
from importlib import metadata


def path() -> str:
    """Its path: of this installation's scripts, else of PATH.

    Raises FileNotFoundError when it is in neither.
    """
    try:
        files = metadata.distribution("unisono").files or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "unisono" and file.parts[-2] == "bin":
            return os.path.realpath(file.locate())
    found = shutil.which("unisono")
    if found is None:
        raise FileNotFoundError("the program unisono is neither in this installation nor in PATH")
    return found


def with_interpreter(arguments: list[str]) -> list[str]:
    """The arguments of the program, in which a Python file that `run` starts has this interpreter in front of it."""
    if arguments[:1] != ["run"]:
        return arguments
    for index, argument in enumerate(arguments):
        if argument == "--":
            rest = arguments[index + 1 :]
            own = [sys.executable] if rest and rest[0].endswith(".py") else []
            return [*arguments[: index + 1], *own, *rest]
        if argument.endswith(".py"):
            return [*arguments[:index], "--", sys.executable, *arguments[index:]]
    return arguments
