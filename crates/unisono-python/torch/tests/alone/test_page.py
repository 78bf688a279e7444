"""The programs of docs/torch.md, by both launchers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[5] / "docs" / "torch.md"
PROGRAMS = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
UNISONO = [str(Path(sys.executable).parent / "unisono"), "run", "-n", "4"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4", "--rdzv-backend", "c10d"]
TORCHRUN += ["--rdzv-endpoint", "127.0.0.1:0"]
SECONDS_MAX = 100


def output_of(launcher, folder, name):
    """The output of ranks of a program."""
    program = folder / name
    program.write_text(PROGRAMS[name], encoding="utf-8")
    job = subprocess.Popen(
        [*launcher, str(program)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        output, _ = job.communicate(timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        output, _ = job.communicate()
        pytest.fail(f"after {SECONDS_MAX} s the job had said:\n{output}")
    assert job.returncode == 0, output
    return output


def test_the_page_has_programs():
    assert sorted(PROGRAMS) == ["sharded.py", "survive.py", "train.py"]


@pytest.mark.parametrize("launcher", [[*UNISONO, "--", sys.executable], TORCHRUN], ids=["unisono", "torchrun"])
def test_training(tmp_path, launcher):
    output = output_of(launcher, tmp_path, "train.py")
    losses = {int(rank): float(loss) for rank, loss in re.findall(r"rank (\d): (\d+\.\d+)", output)}
    # The sum of 20 numbers has a variance of 20.
    assert sorted(losses) == [0, 1, 2, 3] and max(losses.values()) < 5, output


def test_sharded_parameters(tmp_path):
    output = output_of([*UNISONO, "--", sys.executable], tmp_path, "sharded.py")
    assert output.count("the whole sum is 28") == 4, output


def test_survivors_go_on(tmp_path):
    output = output_of([*UNISONO, "--keep-going", "--", sys.executable], tmp_path, "survive.py")
    assert output.count("lost [2], 3 ranks go on") == 3, output
