"""Calls that move elements, against numpy."""

from __future__ import annotations

import array

import numpy as np
import pytest

import unisono as un

DTYPES = ["int8", "uint16", "int64", "float16", "float32", "float64", "complex64", "complex128", "bool"]


def of_rank(rank: int, shape: tuple[int, ...], dtype: str = "int64") -> np.ndarray:
    """An array whose elements tell rank and index."""
    return (np.arange(int(np.prod(shape))).reshape(shape) % 7 + 10 * rank).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_broadcast(comm, dtype):
    for root in range(comm.size):
        own = of_rank(comm.rank, (4, 5), dtype)
        assert comm.broadcast(own, root) is own
        assert (own == of_rank(root, (4, 5), dtype)).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_gather(comm, dtype):
    own = of_rank(comm.rank, (2, 3), dtype)
    expected = np.stack([of_rank(rank, (2, 3), dtype) for rank in range(comm.size)])
    result = comm.all_gather(own)
    assert result.dtype == own.dtype and result.shape == (comm.size, 2, 3) and (result == expected).all()

    out = np.zeros((comm.size, 2, 3), dtype)
    assert comm.all_gather(own, out=out) is out
    assert (out == expected).all()

    outs = [np.zeros((2, 3), dtype) for _ in range(comm.size)]
    comm.all_gather(own, out=outs)
    assert (np.stack(outs) == expected).all()

    whole = np.zeros((comm.size, 2, 3), dtype)
    whole[comm.rank] = own
    comm.all_gather(whole, out=whole)
    assert (whole == expected).all()


def test_uneven_all_gather(comm):
    counts = [rank % 3 for rank in range(comm.size)]
    own = of_rank(comm.rank, (counts[comm.rank],))
    expected = np.concatenate([of_rank(rank, (count,)) for rank, count in enumerate(counts)])
    assert (comm.all_gather(own, counts=counts) == expected).all()
    outs = [np.zeros(count, "int64") for count in counts]
    comm.all_gather(own, out=outs)
    assert (np.concatenate(outs) == expected).all()
    with pytest.raises(un.InvalidArgument, match="5 counts for"):
        comm.all_gather(own, counts=[1] * 5)


def test_gather_and_scatter(comm):
    root = 1 % comm.size
    own = of_rank(comm.rank, (3,), "float32")
    gathered = comm.gather(own, root)
    expected = np.stack([of_rank(rank, (3,), "float32") for rank in range(comm.size)])
    if comm.rank == root:
        assert (gathered == expected).all()
    else:
        assert gathered is None

    out = np.zeros(3, "float32")
    assert comm.scatter(expected if comm.rank == root else None, out, root) is out
    assert (out == own).all()
    out[:] = 0
    comm.scatter(list(expected) if comm.rank == root else None, out, root)
    assert (out == own).all()


def test_uneven_gather_and_scatter(comm):
    counts = list(range(1, comm.size + 1))
    parts = [of_rank(rank, (count,)) for rank, count in enumerate(counts)]
    gathered = comm.gather(parts[comm.rank], counts=counts)
    if comm.rank == 0:
        assert (gathered == np.concatenate(parts)).all()
    out = np.zeros(counts[comm.rank], "int64")
    comm.scatter(np.concatenate(parts) if comm.rank == 0 else None, out, counts=counts)
    assert (out == parts[comm.rank]).all()


def test_all_to_all(comm):
    size, rank = comm.size, comm.rank
    own = np.array([[100 * rank + peer, peer] for peer in range(size)])
    expected = np.array([[100 * peer + rank, rank] for peer in range(size)])
    result = comm.all_to_all(own)
    assert result.shape == own.shape and (result == expected).all()
    comm.all_to_all(own, out=own)
    assert (own == expected).all()


def test_uneven_all_to_all(comm):
    size, rank = comm.size, comm.rank
    send = [(rank + peer) % 3 for peer in range(size)]
    sent = [np.full(count, 10 * rank + peer) for peer, count in enumerate(send)]
    expected = [np.full((rank + peer) % 3, 10 * peer + rank) for peer in range(size)]
    result = comm.all_to_all(np.concatenate(sent), send_counts=send, receive_counts=send)
    assert (result == np.concatenate(expected)).all()
    outs = [np.zeros(len(part), "int64") for part in expected]
    comm.all_to_all(sent, out=outs)
    assert all((out == part).all() for out, part in zip(outs, expected))
    with pytest.raises(un.InvalidArgument, match="go together"):
        comm.all_to_all(np.concatenate(sent), send_counts=send, out=np.zeros(1, "int64"))


def test_arrays_of_other_kinds(comm):
    total = sum(range(comm.size))
    own = array.array("d", [comm.rank, comm.rank])
    comm.all_reduce(own)
    assert own.tolist() == [total, total]

    own = bytearray([comm.rank, 1])
    comm.all_reduce(memoryview(own), un.MAX)
    assert own == bytes([comm.size - 1, 1])

    gathered = comm.all_gather(bytes([comm.rank]))
    assert bytes(gathered) == bytes(range(comm.size))


def test_elements_of_the_program(comm):
    own = np.array([(comm.rank, 1.5)], dtype=[("rank", "i4"), ("value", "f8")])
    gathered = comm.all_gather(own, dtype="opaque:12")
    assert gathered["rank"].ravel().tolist() == list(range(comm.size))
    with pytest.raises(un.InvalidArgument, match='dtype="opaque:12" moves them'):
        comm.all_gather(own)
    with pytest.raises(un.InvalidArgument, match="only a user function can read opaque elements"):
        comm.all_reduce(own, dtype="opaque:12")


def test_barrier(comm):
    for _ in range(3):
        comm.barrier()
