"""Arrays that no call takes are refused with the reason, and change nothing."""

from __future__ import annotations

import numpy as np
import pytest

import unisono as un


def test_read_only(comm):
    own = np.ones(3)
    own.flags.writeable = False
    with pytest.raises(un.InvalidArgument, match="array: read-only|is read-only"):
        comm.all_reduce(own)
    out = np.zeros(3)
    comm.all_reduce(own, out=out)
    assert (out == comm.size).all()
    with pytest.raises(un.InvalidArgument, match="is read-only"):
        comm.broadcast(b"abc")


def test_strided(comm):
    for own in (np.ones(10)[::2], np.ones((3, 4)).T, np.ones((4, 4))[:, 1]):
        with pytest.raises(un.InvalidArgument, match="do not follow each other.*ascontiguousarray"):
            comm.all_reduce(own)
    # A single column or row is contiguous.
    own = np.ones((1, 5))[:, ::-1][:, ::-1]
    comm.all_reduce(own)


class Other(np.ndarray):
    """Arrays that come by the buffer protocol; plain ones are read where they stand."""


@pytest.mark.parametrize("letter", "bBhHiIlLqQefdFD?")
def test_plain_arrays_are_those_of_the_buffer_protocol(comm, letter):
    plain, other = np.ones((2, 3), letter), np.zeros((2, 3), letter).view(Other)
    comm.all_reduce(plain, un.MAX if letter not in "FD?" else un.BIT_OR if letter == "?" else un.SUM, out=other)
    assert (other == (comm.size if letter in "FD" else 1)).all()
    rows = comm.all_gather(plain)
    assert rows.shape == (comm.size, 2, 3) and (rows == 1).all()
    plain.flags.writeable = other.flags.writeable = False
    for own in (plain, other):
        with pytest.raises(un.InvalidArgument, match="is read-only"):
            comm.broadcast(own)


def test_elements_at_odd_addresses(comm):
    own = np.zeros(8 * 3 + 1, "uint8")[1:].view("f8")
    own[:] = comm.rank
    comm.all_reduce(own, un.MAX)
    assert (own == comm.size - 1).all()


def test_other_byte_order(comm):
    with pytest.raises(un.InvalidArgument, match="byte order"):
        comm.all_reduce(np.ones(3, dtype=">f8"))
    comm.all_reduce(np.ones(3, dtype="<f8"))


def test_other_types_and_lengths(comm):
    with pytest.raises(un.InvalidArgument, match="out: elements of f32, but the input has f64"):
        comm.all_reduce(np.ones(3), out=np.ones(3, "float32"))
    with pytest.raises(un.InvalidArgument, match="4 elements, but .* needs 3"):
        comm.all_reduce(np.ones(3), out=np.ones(4))
    with pytest.raises(un.InvalidArgument, match="Python objects"):
        comm.all_reduce(np.array([{}, []], dtype=object))
    with pytest.raises(un.InvalidArgument, match="opaque:16"):
        comm.all_reduce(np.ones(3, "longdouble"))
    if comm.size > 1:
        with pytest.raises(un.InvalidArgument, match="do not divide among"):
            comm.reduce_scatter(np.ones(2 * comm.size + 1))
    for wrong in (None, 3.0, "text", object()):
        with pytest.raises(TypeError, match="no array"):
            comm.all_reduce(wrong)


def test_operators_that_do_not_fit(comm):
    with pytest.raises(un.InvalidArgument, match="sum is not defined on bool"):
        comm.all_reduce(np.ones(3, "bool"))
    with pytest.raises(un.InvalidArgument, match="unknown reduce op"):
        comm.all_reduce(np.ones(3), "summ")
    with pytest.raises(TypeError, match="unisono.SUM is one"):
        comm.all_reduce(np.ones(3), 4)


def test_roots_are_checked(comm):
    with pytest.raises(un.InvalidArgument, match="the group has ranks 0 to"):
        comm.broadcast(np.ones(1), comm.size)


def test_memory_that_is_shared(comm):
    own = np.ones(8)
    with pytest.raises(un.InvalidArgument, match="shares memory"):
        comm.all_reduce(own[:4], out=own[2:6])
    with pytest.raises(un.InvalidArgument, match="shares memory"):
        comm.all_reduce([own[:4], own[3:]])
    with pytest.raises(un.InvalidArgument, match="shares memory"):
        comm.send_recv(own[:4], None, own[2:], None)


def test_lists(comm):
    with pytest.raises(un.InvalidArgument, match="empty list"):
        comm.all_reduce([])
    with pytest.raises(un.InvalidArgument, match="one element type"):
        comm.all_reduce([np.ones(1), np.ones(1, "float32")])


def test_zero_size_and_scalars(comm):
    own = np.zeros((0, 3))
    comm.all_reduce(own)
    assert comm.all_gather(own).shape == (comm.size, 0, 3)
    own = np.array(2.0)
    comm.all_reduce(own)
    assert own == 2.0 * comm.size
    assert (comm.all_gather(np.array(comm.rank)) == np.arange(comm.size)).all()
    with pytest.raises(un.InvalidArgument, match="its memory is not exported"):
        comm.all_gather(np.float64(comm.rank))


def test_arrays_stay_where_they_are_during_a_call(comm):
    own = bytearray(4)
    work = comm.recv_async(own, (comm.rank - 1) % comm.size)
    with pytest.raises(BufferError):
        own.extend(b"more")
    comm.send(bytes([comm.rank] * 4), (comm.rank + 1) % comm.size)
    work.wait()
    assert own == bytes([(comm.rank - 1) % comm.size] * 4)


def test_an_array_that_nobody_holds_lives_until_its_call_has_ended(comm):
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    sent = [comm.send_async(np.full(100_000, comm.rank, "int32"), right, tag) for tag in range(4)]
    comm.barrier()
    for tag in range(4):
        out = np.zeros(100_000, "int32")
        comm.recv(out, left, tag)
        assert (out == left).all()
    un.wait_all(sent)
