"""Every test has a watchdog, which shows where each thread is."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator

import pytest

TEST_SECONDS_MAX = 110


@pytest.fixture(autouse=True)
def watchdog() -> Iterator[None]:
    faulthandler.dump_traceback_later(TEST_SECONDS_MAX, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
