"""The fixture `unisono_world` of pytest: all ranks, in each test a communicator of its own.

Start pytest as ranks, `unisono run -n 4 -- python -m pytest`; without a launcher it is a world of one. When a test fails
on a rank, its communicator is aborted, so that no other rank waits in the test.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import unisono

_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if report.when == "call":
        item.stash[_FAILED] = report.failed
    return report


@pytest.fixture(scope="session")
def _unisono_job() -> unisono.World:
    return unisono.init(adopt=True)


@pytest.fixture
def unisono_world(request: pytest.FixtureRequest, _unisono_job: unisono.World) -> Iterator[unisono.Communicator]:
    """A communicator of all ranks for one test."""
    communicator = _unisono_job.duplicate()
    yield communicator
    if request.node.stash.get(_FAILED, True):
        communicator.abort()
    else:
        communicator.close()
