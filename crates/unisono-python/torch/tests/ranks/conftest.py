"""Tests whose ranks are the processes of `unisono run -n 4 -- python -m pytest tests/ranks`.

Each test has a default group of its own, which ends with it: a test that fails on a rank aborts its group, so that no
other rank waits in it, and the next test begins anew.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist

TIMEOUT = timedelta(seconds=60)

_FAILED = pytest.StashKey[bool]()

# The store of torchrun's address, which all ranks meet through in every test.
_STORE = pytest.StashKey[dist.Store]()


class World(NamedTuple):
    """This rank, and the number of ranks."""

    rank: int
    size: int

    def other(self, distance: int = 1) -> int:
        """A rank so many places after this one."""
        return (self.rank + distance) % self.size


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if report.when == "call":
        item.stash[_FAILED] = report.failed
    return report


def backend(group: dist.ProcessGroup | None = None) -> Any:
    """unisono's part of a group."""
    group = group or dist.distributed_c10d._get_default_group()
    return group._get_backend(torch.device("cpu"))


def _store(config: pytest.Config) -> dist.Store:
    if _STORE not in config.stash:
        if "RANK" in os.environ:
            config.stash[_STORE], _, _ = next(iter(dist.rendezvous("env://", timeout=TIMEOUT)))
        else:
            config.stash[_STORE] = dist.HashStore()
    return config.stash[_STORE]


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """All ranks, as the default group of one test."""
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    store = dist.PrefixStore(request.node.nodeid, _store(request.config))
    dist.init_process_group("unisono", store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    yield World(rank, size)
    if not dist.is_initialized():
        return
    if request.node.stash.get(_FAILED, True):
        backend().abort()
    dist.destroy_process_group()


@pytest.fixture
def random_numbers(world: World) -> torch.Generator:
    """The same random numbers on every rank. UNISONO_TEST_SEED repeats them."""
    seeds = [int(os.environ.get("UNISONO_TEST_SEED", random.randrange(1 << 32)))]
    dist.broadcast_object_list(seeds)
    print(f"UNISONO_TEST_SEED={seeds[0]}")
    return torch.Generator().manual_seed(seeds[0])
