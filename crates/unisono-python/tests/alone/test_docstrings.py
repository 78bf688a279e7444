"""The examples of docstrings run, in a world of one."""

from __future__ import annotations

import subprocess
import sys

from support import SECONDS_MAX

PROGRAM = """
import doctest
import unisono

parser, runner, variables = doctest.DocTestParser(), doctest.DocTestRunner(), {}
# The other examples go on from that of the package.
names = ["", *sorted(set(unisono.__all__) - {"__version__"})]
for name in names:
    documented = getattr(unisono, name) if name else unisono
    test = parser.get_doctest(documented.__doc__ or "", variables, name or "unisono", None, None)
    if test.examples:
        runner.run(test, clear_globs=False)
        variables.update(test.globs)
        print(name or "unisono")
print(runner.summarize())
"""

DOCUMENTED = """
    Cartesian Communicator CompressionState DeviceMesh GroupCalls Op Prepared Store Work World run unisono
"""


def test_examples_of_docstrings():
    command = [sys.executable, "-c", PROGRAM]
    output = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX).stdout
    assert set(DOCUMENTED.split()) <= set(output.split()) and "failed=0" in output, output
