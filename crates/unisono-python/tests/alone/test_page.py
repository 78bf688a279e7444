"""The programs of docs/python.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import run

PAGE = Path(__file__).parents[4] / "docs" / "python.md"
PROGRAMS = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))


def test_the_page_has_programs():
    assert len(PROGRAMS) >= 8


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_the_page(tmp_path, name):
    arguments = ["--keep-going"] if name == "survive.py" else []
    output = run(tmp_path, 4, PROGRAMS[name], arguments=arguments)
    if name == "hello.py":
        assert sorted(output.splitlines()) == [f"[{rank}] rank {rank} of 4" for rank in range(4)]
    if name == "survive.py":
        assert output.count("lost [2] in") == 3 and output.count("done with 3") == 3
