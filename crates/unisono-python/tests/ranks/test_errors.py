"""Errors name ranks, calls and lines of Python; they leave no other rank waiting."""

from __future__ import annotations

import pickle
import threading
import time

import numpy as np
import pytest

import unisono as un

HERE = __file__[-40:]


def line_of(text: str) -> int:
    """The line of this file that has this comment."""
    with open(__file__, encoding="utf-8") as file:
        return next(number for number, line in enumerate(file, 1) if line.rstrip().endswith(f"# {text}"))


@pytest.fixture
def group(comm):
    """A communicator that a test may break."""
    return comm.duplicate()


def test_a_mismatch_names_both_lines(group):
    if group.size == 1:
        pytest.skip("one rank makes no mismatch")
    with pytest.raises(un.Mismatch) as caught:
        if group.rank == 0:
            group.all_reduce(np.ones(3))  # all_reduce of rank 0
        else:
            group.broadcast(np.ones(3))  # broadcast of the others
    text = str(caught.value)
    for comment in ("all_reduce of rank 0", "broadcast of the others"):
        assert f"{HERE}:{line_of(comment)}" in text, text
    assert len(caught.value.ranks) == 2 and 0 in caught.value.ranks
    assert ".rs" not in text and caught.value.kind == "Mismatch" and not caught.value.usable


def test_a_mismatch_of_objects_names_both_lines(group):
    if group.size == 1:
        pytest.skip("one rank makes no mismatch")
    with pytest.raises(un.Mismatch) as caught:
        if group.rank == 0:
            group.all_gather_object(1)  # all_gather_object of rank 0
        else:
            group.broadcast_object(1)  # broadcast_object of the others
    assert f"{HERE}:{line_of('broadcast_object of the others')}" in str(caught.value)
    assert ".rs" not in str(caught.value)


def test_a_timeout_names_the_rank_that_does_not_come(group):
    if group.size == 1:
        pytest.skip("one rank waits for nobody")
    patient = group.with_options(timeout=0.5)
    if group.rank == 1:
        time.sleep(1.5)
        with pytest.raises(un.Error):
            group.barrier()
    else:
        with pytest.raises(un.Timeout) as caught:
            patient.barrier()  # barrier
        assert 1 in caught.value.ranks and isinstance(caught.value, TimeoutError)
        assert f"{HERE}:{line_of('barrier')}" in caught.value.call


def test_an_abort_ends_the_calls_of_all(group):
    if group.rank == 0:
        group.abort()
    with pytest.raises(un.Aborted) as caught:
        group.recv(np.ones(1), un.ANY)
    assert caught.value.ranks == [0]


def test_an_exception_in_a_with_block_ends_the_others(group):
    if group.size == 1:
        pytest.skip("one rank has no others")
    with pytest.raises((un.Aborted, ZeroDivisionError)):
        with group:
            if group.rank == 0:
                1 / 0
            group.barrier()


def test_calls_after_close(group):
    with group:
        group.barrier()
    with pytest.raises(un.Closed) as caught:
        group.all_reduce(np.ones(1))  # after close
    assert f"{HERE}:{line_of('after close')}" in caught.value.call


def test_two_threads_at_once_are_refused_unless_they_queue(group, _unisono_job):
    if group.size == 1:
        pytest.skip("a call of one rank does not wait")
    held, store = group.with_options(label="held"), _unisono_job.store().prefixed("test_two_threads/")
    if group.rank == 0:
        thread = threading.Thread(target=held.barrier)
        thread.start()
        while "held" not in _unisono_job.flight_record():
            time.sleep(0.01)
        with pytest.raises(un.ConcurrentUse) as caught:
            group.all_reduce(np.ones(1))
        assert caught.value.usable
        store.set("refused", b"")
        group.with_options(queued=True).all_reduce(np.ones(1))
        thread.join()
    else:
        store.wait(["refused"], timeout=60)
        held.barrier()
        group.all_reduce(np.ones(1))


def test_errors_travel_as_pickles():
    error = un.PeerLost("lost rank 3", ranks=[3], call="barrier at x.py:1")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is un.PeerLost and str(copy) == "lost rank 3" and copy.ranks == [3]
    assert copy.call == "barrier at x.py:1" and isinstance(copy, ConnectionError)


def test_lines_of_helpers_are_those_of_the_program(comm):
    def helper():
        comm.all_reduce(np.ones(1), out=np.ones(2))  # helper

    with pytest.raises(un.InvalidArgument) as caught:
        helper()
    assert f"{HERE}:{line_of('helper')}" in str(caught.value)


def test_settings_are_named():
    with pytest.raises(un.InvalidArgument, match="world is open|init") as caught:
        un.init()
    assert caught.value.usable
    with pytest.raises(un.InvalidArgument, match="go together"):
        un.init(rank=0)
