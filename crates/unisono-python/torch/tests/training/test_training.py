"""Trainings with frameworks on top of torch.distributed end on Gloo's losses; each in fresh processes.

    python -m pytest tests/training
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_FOLDER = Path(__file__).parent

RANKS = 2

# DeepSpeed compiles an extension when the first program of a user starts.
PROCESS_SECONDS_MAX = 600.0

# Sums of two ranks are exact, so the frameworks differ where they round or sum in another order.
RELATIVE_DIFFERENCE_MAX = 1e-5

NAMES = (
    "ddp",
    "bf16_hook",
    "fp16_hook",
    "power_sgd",
    "ddp_and_rpc",
    "fsdp1",
    "fsdp2",
    "tensor_parallel",
    "zero_redundancy",
    "checkpoint",
    "pipeline",
)


@functools.cache
def losses(script: str, backend: str, argument: str) -> list[float]:
    """The losses of a training in processes of its own, started by torchrun."""
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    # The compiler's helpers lie beside the interpreter in an environment that is not activated.
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PATH": paths}
    result = subprocess.run(
        [*words, str(_FOLDER / script), backend, argument],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PROCESS_SECONDS_MAX,
        check=False,
    )
    assert result.returncode == 0, f"{script} {backend} {argument}:\n{result.stdout[-2000:]}\n{result.stderr[-6000:]}"
    lines = [json.loads(line) for line in result.stdout.splitlines() if line.startswith('{"losses"')]
    assert [line["backend"] for line in lines] == [backend]
    return lines[0]["losses"]


def assert_equal_losses(script: str, argument: str) -> None:
    ours, theirs = (losses(script, backend, argument) for backend in ("unisono", "gloo"))
    assert ours == pytest.approx(theirs, rel=RELATIVE_DIFFERENCE_MAX)
    assert ours[-1] < 0.7 * ours[0], "the model does not learn"


@pytest.mark.parametrize("name", NAMES)
def test_a_training_ends_on_the_losses_of_gloo(name: str) -> None:
    assert_equal_losses("models.py", name)


def test_ways_to_divide_one_model_end_on_the_losses_of_ddp() -> None:
    expected = losses("models.py", "unisono", "ddp")
    for name in ("ddp_and_rpc", "fsdp1", "fsdp2", "zero_redundancy"):
        assert losses("models.py", "unisono", name) == pytest.approx(expected, rel=RELATIVE_DIFFERENCE_MAX)


@pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed")
@pytest.mark.skipif(
    importlib.util.find_spec("ninja") is None and shutil.which("ninja") is None,
    reason="ninja is not installed, which DeepSpeed needs to compile an extension when it starts",
)
@pytest.mark.parametrize("stage", ["0", "1", "2", "3"])
def test_zero_of_deepspeed_ends_on_the_losses_of_gloo(stage: str) -> None:
    assert_equal_losses("deepspeed_zero.py", stage)
