"""Objects travel as pickles."""

from __future__ import annotations

import numpy as np
import pytest

import unisono as un


def test_broadcast(comm):
    for root in range(comm.size):
        own = {"root": root, "list": list(range(1000))} if comm.rank == root else None
        assert comm.broadcast_object(own, root) == {"root": root, "list": list(range(1000))}
    assert comm.broadcast_object(None) is None


def test_all_gather_and_gather(comm):
    own = {"rank": comm.rank, "array": np.full(comm.rank * 500, 1.5)}
    everything = comm.all_gather_object(own)
    assert [one["rank"] for one in everything] == list(range(comm.size))
    assert [len(one["array"]) for one in everything] == [500 * rank for rank in range(comm.size)]
    gathered = comm.gather_object((comm.rank, "x" * comm.rank), 0)
    expected = [(rank, "x" * rank) for rank in range(comm.size)]
    assert gathered == (expected if comm.rank == 0 else None)


def test_scatter(comm):
    objects = [{"for": rank} for rank in range(comm.size)] if comm.rank == 0 else None
    assert comm.scatter_object(objects) == {"for": comm.rank}


def test_messages(comm):
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    if comm.rank % 2 == 0:
        comm.send_object(("from", comm.rank), right, 4)
    if comm.size > 1 and left % 2 == 0:
        object_, received = comm.recv_object(left, un.ANY)
        assert object_ == ("from", left) and (received.source, received.tag) == (left, 4)
    elif comm.size == 1:
        assert comm.recv_object(un.ANY, 4)[0] == ("from", 0)
    comm.barrier()


def test_an_object_that_does_not_pickle_is_an_exception_here_only(comm):
    with pytest.raises((TypeError, AttributeError)):
        comm.all_gather_object(lambda: None)
    assert comm.all_gather_object(1) == [1] * comm.size
