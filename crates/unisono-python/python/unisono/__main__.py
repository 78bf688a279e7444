"""`python -m unisono run -n 4 train.py`: the program `unisono`, whose ranks have this interpreter."""

from __future__ import annotations

import os
import sys

from ._program import path, with_interpreter


def main() -> None:
    """Becomes the program."""
    program = path()
    os.execv(program, [program, *with_interpreter(sys.argv[1:])])


main()
