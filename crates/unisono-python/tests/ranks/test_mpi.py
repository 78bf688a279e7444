"""The programs of mpi4py's tutorial, with `from unisono import MPI` in their first line."""

from __future__ import annotations

import numpy as np
import pytest

import unisono as un
from unisono import MPI


@pytest.fixture
def world(unisono_world):
    return MPI.Comm(unisono_world)


def test_objects_between_two_ranks(world):
    comm, rank = world, world.Get_rank()
    if comm.size < 2:
        pytest.skip("two ranks")
    if rank == 0:
        comm.send({"a": 7, "b": 3.14}, dest=1, tag=11)
        comm.isend({"again": True}, dest=1, tag=12).wait()
    elif rank == 1:
        assert comm.recv(source=0, tag=11) == {"a": 7, "b": 3.14}
        request = comm.irecv(source=0, tag=12)
        assert request.wait() == {"again": True}


def test_arrays_between_two_ranks(world):
    comm, rank = world, world.Get_rank()
    if comm.size < 2:
        pytest.skip("two ranks")
    if rank == 0:
        comm.Send([np.arange(1000, dtype="i"), MPI.INT], dest=1, tag=77)
        comm.Send(np.arange(100, dtype=np.float64), dest=1, tag=13)
    elif rank == 1:
        data, status = np.empty(1000, dtype="i"), MPI.Status()
        comm.Recv([data, MPI.INT], source=0, tag=77, status=status)
        assert (data == np.arange(1000)).all()
        assert (status.Get_source(), status.Get_tag(), status.Get_count(MPI.INT)) == (0, 77, 1000)
        data = np.empty(100)
        comm.Recv(data, source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG)
        assert (data == np.arange(100)).all()


def test_collectives_on_objects(world):
    comm, rank, size = world, world.rank, world.size
    data = {"key1": [7, 2.72, 2 + 3j]} if rank == 0 else None
    assert comm.bcast(data, root=0) == {"key1": [7, 2.72, 2 + 3j]}
    assert comm.scatter([(i + 1) ** 2 for i in range(size)] if rank == 0 else None) == (rank + 1) ** 2
    gathered = comm.gather((rank + 1) ** 2, root=0)
    assert gathered == ([(i + 1) ** 2 for i in range(size)] if rank == 0 else None)
    assert comm.allgather(rank) == list(range(size))
    assert comm.alltoall([(rank, i) for i in range(size)]) == [(i, rank) for i in range(size)]
    assert comm.allreduce(rank) == sum(range(size))
    assert comm.allreduce([rank], op=MPI.SUM) == list(range(size))
    assert comm.reduce(rank, op=MPI.MAX, root=0) == (size - 1 if rank == 0 else None)
    comm.barrier()


def test_collectives_on_arrays(world):
    comm, rank, size = world, world.Get_rank(), world.Get_size()
    data = np.arange(100, dtype="i") if rank == 0 else np.empty(100, dtype="i")
    comm.Bcast(data, root=0)
    assert (data == np.arange(100)).all()

    sendbuf = None
    if rank == 0:
        sendbuf = np.empty([size, 100], dtype="i")
        sendbuf.T[:, :] = range(size)
    recvbuf = np.empty(100, dtype="i")
    comm.Scatter(sendbuf, recvbuf, root=0)
    assert np.allclose(recvbuf, rank)

    sendbuf = np.zeros(100, dtype="i") + rank
    recvbuf = np.empty([size, 100], dtype="i") if rank == 0 else None
    comm.Gather(sendbuf, recvbuf, root=0)
    if rank == 0:
        assert all(np.allclose(recvbuf[i, :], i) for i in range(size))

    out = np.empty([size, 100], dtype="i")
    comm.Allgather([sendbuf, MPI.INT], [out, MPI.INT])
    assert (out == np.arange(size)[:, None]).all()
    total = np.empty(100, dtype="i")
    comm.Allreduce(sendbuf, total, op=MPI.SUM)
    assert (total == sum(range(size))).all()
    comm.Allreduce(MPI.IN_PLACE, sendbuf, op=MPI.MAX)
    assert (sendbuf == size - 1).all()
    exchanged = np.empty(size, dtype="d")
    comm.Alltoall(np.arange(size, dtype="d") + 10 * rank, exchanged)
    assert (exchanged == 10 * np.arange(size) + rank).all()
    comm.Barrier()


def test_matrix_vector_product(world):
    comm = world
    rows, columns = 3, 3 * comm.size
    whole = np.arange(columns * columns, dtype="d").reshape(columns, columns)
    vector = np.arange(columns, dtype="d")
    own, x = whole[comm.rank * rows : (comm.rank + 1) * rows], vector[comm.rank * rows : (comm.rank + 1) * rows].copy()
    gathered = np.zeros(columns, dtype="d")
    comm.Allgather([x, MPI.DOUBLE], [gathered, MPI.DOUBLE])
    assert np.allclose(own @ gathered, (whole @ vector)[comm.rank * rows : (comm.rank + 1) * rows])


def test_pi(world):
    comm = world
    n = np.array(100 if comm.rank == 0 else 0, "i")
    comm.Bcast([n, MPI.INT], root=0)
    h = 1.0 / int(n)
    own = sum(4.0 / (1.0 + (h * (i - 0.5)) ** 2) for i in range(comm.rank + 1, int(n) + 1, comm.size))
    pi = np.array(0.0, "d")
    comm.Reduce([np.array(own * h, "d"), MPI.DOUBLE], [pi, MPI.DOUBLE], op=MPI.SUM, root=0)
    if comm.rank == 0:
        assert abs(float(pi) - np.pi) < 1e-3


def test_counts_that_differ_by_rank(world):
    comm, rank, size = world, world.rank, world.size
    counts = [i + 1 for i in range(size)]
    starts = [0, *np.cumsum(counts)[:-1]]
    own = np.full(rank + 1, float(rank))
    expected = np.repeat(np.arange(size, dtype="d"), counts)
    out = np.zeros(sum(counts)) if rank == 0 else None
    comm.Gatherv(own, [out, counts, starts, MPI.DOUBLE] if rank == 0 else None)
    if rank == 0:
        assert (out == expected).all()
    back = np.zeros(rank + 1)
    comm.Scatterv([out, counts, starts, MPI.DOUBLE] if rank == 0 else None, back)
    assert (back == own).all()
    out = np.zeros(sum(counts))
    comm.Allgatherv(own, [out, (counts, starts)])
    assert (out == expected).all()
    spread = np.zeros(2 * sum(counts))
    comm.Allgatherv(own, [spread, counts, [2 * start for start in starts], MPI.DOUBLE])
    assert spread.sum() == expected.sum()


def test_messages_around_a_ring(world):
    comm, rank, size = world, world.rank, world.size
    left, right = (rank - 1) % size, (rank + 1) % size
    out, status = np.empty(1, "i"), MPI.Status()
    comm.Sendrecv(np.array([rank], "i"), right, 1, out, left, 1, status)
    assert out[0] == left and status.source == left
    assert comm.sendrecv(("object", rank), right, 2, source=left, recvtag=2) == ("object", left)

    outs = [np.empty(2, "d") for _ in range(3)]
    requests = [comm.Irecv(out, source=left, tag=tag) for tag, out in enumerate(outs)]
    requests += [comm.Isend(np.array([tag, rank], "d"), dest=right, tag=tag) for tag in range(3)]
    MPI.Request.Waitall(requests)
    assert [out.tolist() for out in outs] == [[tag, left] for tag in range(3)]

    sent = [comm.Isend(np.array([tag], "i"), dest=right, tag=tag) for tag in (5, 6)]
    receives = [comm.Irecv(np.empty(1, "i"), source=left, tag=tag) for tag in (5, 6)]
    assert {MPI.Request.Waitany(receives), MPI.Request.Waitany(receives)} == {0, 1}
    assert MPI.Request.Waitany(receives) == MPI.UNDEFINED
    MPI.Request.Waitall(sent)

    comm.Send(np.zeros(3, "d"), MPI.PROC_NULL)
    comm.Recv(np.zeros(3, "d"), MPI.PROC_NULL)


def test_probe(world):
    comm, rank, size = world, world.rank, world.size
    request = comm.isend([1, 2, 3], (rank + 1) % size, tag=8)
    status = MPI.Status()
    assert comm.Probe(MPI.ANY_SOURCE, 8, status)
    assert status.tag == 8 and comm.Iprobe(status.source, 8) and not comm.Iprobe(status.source, 99)
    assert comm.recv(source=status.source, tag=8) == [1, 2, 3]
    request.wait()
    assert not comm.Iprobe(MPI.ANY_SOURCE, 8)

    sent = comm.Isend(np.array([rank, 2.5]), (rank + 1) % size, tag=9)
    assert comm.Probe(status=status) and status.Get_count(MPI.DOUBLE) == 2
    out, request = np.zeros(2), comm.irecv(tag=10)
    assert not request.Test()
    comm.Barrier()
    received = comm.Irecv(out, status.source, 9)
    assert received and received.Test(status) and out.tolist() == [(rank - 1) % size, 2.5] and not received
    comm.send("late", (rank + 1) % size, tag=10)
    assert request.wait() == "late"
    sent.Wait()
    comm.Barrier()


def test_a_task_farm(world):
    comm, rank, size = world, world.rank, world.size
    tasks, stop = list(range(20)), 1
    if size < 2:
        pytest.skip("a master and workers")
    if rank == 0:
        results, status, waiting = [], MPI.Status(), list(tasks)
        working = size - 1
        while working:
            result = comm.recv(source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG, status=status)
            if result is not None:
                results.append(result)
            if waiting:
                comm.send(waiting.pop(), dest=status.Get_source(), tag=0)
            else:
                comm.send(None, dest=status.Get_source(), tag=stop)
                working -= 1
        assert sorted(results) == [task * task for task in tasks]
    else:
        result, status = None, MPI.Status()
        while True:
            comm.send(result, dest=0)
            task = comm.recv(source=0, tag=MPI.ANY_TAG, status=status)
            if status.Get_tag() == stop:
                break
            result = task * task


def test_groups(world):
    comm, rank, size = world, world.rank, world.size
    half = comm.Split(color=rank % 2, key=rank)
    assert half.Get_size() == len(range(rank % 2, size, 2)) and half.Get_rank() == rank // 2
    assert comm.Split(MPI.UNDEFINED) is None
    copy = comm.Dup()
    copy.Barrier()
    copy.Free()
    assert MPI.COMM_WORLD.Get_size() == size and MPI.COMM_SELF.Get_size() == 1
    assert MPI.Is_initialized() and not MPI.Is_finalized()


def test_operators_of_the_program(world):
    longest = MPI.Op.Create(lambda left, right: np.maximum(left, right), commute=True)
    out = np.zeros(3)
    world.Allreduce(np.full(3, float(world.rank)), out, longest)
    assert (out == world.size - 1).all()
    assert world.allreduce({world.rank}, op=lambda left, right: left | right) == set(range(world.size))


def test_what_is_not_there_is_named(world):
    with pytest.raises(AttributeError, match="unisono.MPI has no Win"):
        MPI.Win
    with pytest.raises(AttributeError, match="unisono.MPI.Comm has no Create_graph"):
        world.Create_graph
    with pytest.raises(un.InvalidArgument, match="do not divide among|dtype f32 has 4 bytes"):
        world.Bcast([np.zeros(3), MPI.FLOAT])
    with pytest.raises(un.InvalidArgument, match="where an array is needed"):
        world.Bcast(None)
    with pytest.raises(ImportError):
        from unisono.MPI import Group  # noqa: F401
