"""Messages between two ranks."""

from __future__ import annotations

import numpy as np
import pytest

import unisono as un


def neighbours(comm: un.Communicator) -> tuple[int, int]:
    return (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size


def test_a_ring(comm):
    left, right = neighbours(comm)
    own, other = np.full(4, comm.rank), np.zeros(6, "int64")
    received = comm.send_recv(own, right, other, left, 3)
    assert (received.source, received.tag, received.count, received.nbytes) == (left, 3, 4, 32)
    assert other.tolist() == [left] * 4 + [0, 0]


def test_any_source_and_any_tag(comm):
    if comm.rank == 0:
        seen = {}
        for _ in range(comm.size - 1):
            out = np.zeros(1, "int32")
            received = comm.recv(out, un.ANY, un.ANY)
            seen[received.source] = (received.tag, int(out[0]))
        assert seen == {rank: (10 + rank, rank * rank) for rank in range(1, comm.size)}
    else:
        comm.send(np.array([comm.rank**2], "int32"), 0, 10 + comm.rank)


def test_nobody(comm):
    comm.send(np.ones(3), None)
    out = np.full(3, 7.0)
    received = comm.recv(out, None)
    assert (received.source, received.count) == (None, 0) and (out == 7).all()
    received = comm.send_recv(np.ones(3), None, out, None)
    assert received.count == 0


def test_probe(comm):
    left, right = neighbours(comm)
    sent = comm.send_async(np.arange(5, dtype="float32") + comm.rank, right, 9)
    message = comm.probe(left, un.ANY)
    assert (message.source, message.tag, message.dtype, message.count, message.nbytes) == (left, 9, "f32", 5, 20)
    with pytest.raises(un.Truncated):
        message.recv(np.zeros(4, "float32"))
    with pytest.raises(un.InvalidArgument, match="f64, but rank . sent f32"):
        message.recv(np.zeros(5))
    assert (message.recv() == np.arange(5) + left).all()
    with pytest.raises(un.InvalidArgument, match="received already"):
        message.recv()
    sent.wait()
    assert comm.try_probe(left, 10) is None
    # A probe of a rank that has closed the communicator fails.
    comm.barrier()


def test_a_message_that_is_too_long_is_named(comm):
    left, right = neighbours(comm)
    sent = comm.send_async(np.zeros(8), right, 1)
    with pytest.raises(un.Truncated, match=f"64 bytes from rank {left}, tag 1, does not fit into 8") as caught:
        comm.recv(np.zeros(1), left, 1)
    assert caught.value.usable and caught.value.kind == "Truncated"
    sent.wait()
    comm.barrier()


def test_peers_and_tags_are_checked(comm):
    out = np.zeros(1)
    for call, problem in [
        (lambda: comm.send(out, comm.size), "the group has ranks 0 to"),
        (lambda: comm.send(out, -1), "any is unisono.ANY"),
        (lambda: comm.send(out, un.ANY), "a send needs one receiver"),
        (lambda: comm.recv(out, 0, -1), "any is unisono.ANY"),
    ]:
        with pytest.raises(un.InvalidArgument, match=problem):
            call()
    with pytest.raises(TypeError, match="a number or unisono.ANY"):
        comm.send(out, "0")


def test_started_messages(comm):
    left, right = neighbours(comm)
    out = np.zeros((3, 2))
    receives = [comm.recv_async(out[index], left, index) for index in range(3)]
    for index in (2, 1, 0):
        comm.send(np.full(2, 10.0 * comm.rank + index), right, index)
    received = un.wait_all(receives)
    assert [(one.source, one.tag, one.count) for one in received] == [(left, index, 2) for index in range(3)]
    assert (out == 10 * left + np.arange(3)[:, None]).all()


def test_wait_any(comm):
    left, right = neighbours(comm)
    outs = [np.zeros(1), np.zeros(1)]
    works = [comm.recv_async(out, left, tag) for tag, out in enumerate(outs)]
    comm.send(np.ones(1), right, 1)
    assert un.wait_any(works) == 1
    with pytest.raises(TimeoutError, match="it goes on"):
        works[0].wait(0.05)
    with pytest.raises(TimeoutError, match="they go on"):
        un.wait_any([works[0]], timeout=0.05)
    comm.barrier()
    comm.send(np.ones(1), right, 0)
    assert works[0].wait().tag == 0 and works[0].done()
    assert un.wait_any([]) is None
