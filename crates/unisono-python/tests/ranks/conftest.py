"""Tests whose ranks are the processes of `unisono run -n 4 -- python -m pytest tests/ranks`."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest

import unisono as un


@pytest.fixture
def comm(unisono_world: un.Communicator) -> un.Communicator:
    """All ranks, for one test."""
    return unisono_world


@pytest.fixture
def rng(comm: un.Communicator) -> np.random.Generator:
    """The same random numbers on every rank. UNISONO_TEST_SEED repeats them."""
    own = int(os.environ.get("UNISONO_TEST_SEED", random.randrange(1 << 32)))
    seed = comm.broadcast_object(own)
    print(f"UNISONO_TEST_SEED={seed}")
    return np.random.default_rng(seed)
