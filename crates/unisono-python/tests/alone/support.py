"""Programs of several ranks, which tests start."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

SECONDS_MAX = 60
SECRET = "a secret of this test, long enough"

# A job in the background of a shell ignores Ctrl-C. A program inherits that, but not a handler.
signal.signal(signal.SIGINT, signal.default_int_handler)


def start(folder: Path, ranks: int, program: str, **options: object) -> subprocess.Popen[str]:
    """Starts ranks of a program by the console script."""
    file = folder / "program.py"
    file.write_text(textwrap.dedent(program), encoding="utf-8")
    script = Path(sys.executable).parent / "unisono"
    command = [str(script), "run", "-n", str(ranks), *options.pop("arguments", []), "--", sys.executable, str(file)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, **options
    )


def ended(job: subprocess.Popen[str]) -> tuple[int, str]:
    """The status and the output of a job."""
    try:
        output, _ = job.communicate(timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        output, _ = job.communicate()
        raise AssertionError(f"after {SECONDS_MAX} s the job had said:\n{output}")
    return job.returncode, output


def run(folder: Path, ranks: int, program: str, **options: object) -> str:
    """The output of a program that succeeds."""
    status, output = ended(start(folder, ranks, program, **options))
    assert status == 0, output
    return output


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
