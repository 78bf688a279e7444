"""Programs of several ranks, which tests start by torchrun or by our launcher."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

SECONDS_MAX = 90

# A job in the background of a shell ignores Ctrl-C. A program inherits that, but not a handler.
signal.signal(signal.SIGINT, signal.default_int_handler)

HEAD = """
import os, signal, sys, threading, time
from datetime import timedelta
import torch
import torch.distributed as dist

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

def backend(group=None):
    group = group or dist.distributed_c10d._get_default_group()
    return group._get_backend(torch.device("cpu"))

def own(count=3):
    return torch.full((count,), float(rank))

"""
INIT = 'dist.init_process_group("unisono", timeout=timedelta(seconds=60))\n'


def written(folder: Path, program: str, *, joins: bool = True) -> Path:
    """The file of a program, which begins with the common lines, and joins."""
    file = folder / "program.py"
    file.write_text(HEAD + (INIT if joins else "") + textwrap.dedent(program), encoding="utf-8")
    return file


def environment(**settings: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", **settings}


def launched(file: Path, command: list[str], settings: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*command, str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env=environment(**settings),
        cwd=file.parent,
    )


def start(folder: Path, ranks: int, program: str, *, keep_going: bool = False, joins: bool = True, **settings: str):
    """Starts ranks by our launcher."""
    script = str(Path(sys.executable).parent / "unisono")
    command = [script, "run", "-n", str(ranks), *["--keep-going"] * keep_going, "--", sys.executable]
    return launched(written(folder, program, joins=joins), command, settings)


def start_by_torchrun(folder: Path, ranks: int, program: str, *arguments: str, joins: bool = True, **settings: str):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), *arguments]
    return launched(written(folder, program, joins=joins), command, settings)


def ended(job: subprocess.Popen[str]) -> tuple[int, str]:
    """The status and the output of a job."""
    try:
        output, _ = job.communicate(timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        output, _ = job.communicate()
        raise AssertionError(f"after {SECONDS_MAX} s the job had said:\n{output}")
    return job.returncode, output


def run(folder: Path, ranks: int, program: str, **options) -> str:
    """The output of a program that succeeds."""
    status, output = ended(start(folder, ranks, program, **options))
    assert status == 0, output
    return output


def is_calm(output: str) -> bool:
    """Whether no rank crashed."""
    words = ("panicked", "Fatal Python", "terminate called", "core dumped", "Segmentation", "SIGABRT", "Traceback")
    return not any(word in output for word in words)
