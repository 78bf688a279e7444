"""Messages between two ranks, and barriers."""

from __future__ import annotations

import gc
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from conftest import backend
from elements import ALL, name, pattern, raw


def test_a_ring(world):
    rank, size = world
    own, got = torch.full((7,), float(rank)), torch.zeros(7)
    receive = dist.irecv(got, world.other(-1))
    send = dist.isend(own, world.other())
    send.wait()
    receive.wait()
    assert got.tolist() == [float(world.other(-1))] * 7


@pytest.mark.parametrize("dtype", ALL, ids=name)
def test_every_type(world, dtype):
    rank, size = world
    got = pattern(dtype, 5, 1 - world.other(-1))
    receive = backend().recv([got], world.other(-1), 0)
    backend().send([pattern(dtype, 5, rank)], world.other(), 0).wait()
    receive.wait()
    assert raw(got) == raw(pattern(dtype, 5, world.other(-1)))


def test_tags_choose_and_order_stays(world):
    if world.size == 1:
        pytest.skip("torch refuses messages to oneself")
    if world.rank == 0:
        works = [dist.isend(torch.tensor([float(k)]), 1, tag=k % 2) for k in range(6)]
        for work in works:
            work.wait()
    elif world.rank == 1:
        got = torch.zeros(1)
        seen = []
        for tag in (1, 1, 1, 0, 0, 0):
            assert dist.recv(got, 0, tag=tag) == 0
            seen.append(got.item())
        assert seen == [1.0, 3.0, 5.0, 0.0, 2.0, 4.0]


def test_a_receive_from_any_rank(world):
    rank, size = world
    if rank == 0:
        got, senders = torch.zeros(1), []
        for _ in range(size - 1):
            senders.append(dist.recv(got, tag=4))
            assert got.item() == 10.0 * senders[-1]
        assert sorted(senders) == list(range(1, size))
    else:
        dist.send(torch.tensor([10.0 * rank]), 0, tag=4)


def test_the_source_of_an_asynchronous_receive(world):
    rank, size = world
    if size == 1:
        pytest.skip("needs a sender")
    if rank == 0:
        got = torch.zeros(1)
        work = dist.irecv(got, tag=2)
        work.wait()
        assert work._source_rank() == got.item() == 1.0
    elif rank == 1:
        dist.send(torch.tensor([1.0]), 0, tag=2)


def test_views_with_gaps(world):
    rank, size = world
    got = torch.zeros(4, 3)
    receive = dist.irecv(got.t(), world.other(-1))
    dist.isend(torch.arange(12.0).reshape(3, 4) + rank, world.other()).wait()
    receive.wait()
    assert torch.equal(got.t(), torch.arange(12.0).reshape(3, 4) + world.other(-1))


def test_empty_and_long_messages(world):
    for count in (0, 1, 100_000, 2_000_003):
        got = torch.zeros(count, dtype=torch.int32)
        receive = dist.irecv(got, world.other(-1))
        dist.isend(torch.arange(count, dtype=torch.int32) + world.rank, world.other()).wait()
        receive.wait()
        assert torch.equal(got, torch.arange(count, dtype=torch.int32) + world.other(-1))


def test_batches(world):
    rank, size = world
    if size == 1:
        pytest.skip("torch refuses messages to oneself")
    got = [torch.zeros(3) for _ in range(size)]
    others = [other for other in range(size) if other != rank]
    operations = [dist.P2POp(dist.irecv, got[other], other) for other in others]
    operations += [dist.P2POp(dist.isend, torch.full((3,), 10.0 * rank + other), other) for other in others]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert all(got[other].tolist() == [10.0 * other + rank] * 3 for other in others)


def test_messages_do_not_wait_behind_collectives(world):
    """A collective that cannot go on, because a rank waits for a message before it takes part."""
    rank, size = world
    if size == 1:
        pytest.skip("needs two ranks")
    total = torch.full((10,), 1.0)
    if rank == 0:
        work = dist.all_reduce(total, async_op=True)
        dist.send(torch.tensor([5.0]), size - 1)
        work.wait()
    else:
        if rank == size - 1:
            got = torch.zeros(1)
            dist.recv(got, 0)
            assert got.item() == 5.0
        dist.all_reduce(total)
    assert total.tolist() == [float(size)] * 10


def test_dropped_handles(world):
    """Memory of a message whose handle is gone lives until the message has gone, also of a tensor with gaps."""
    got = torch.zeros(4, 50_000)
    dist.irecv(got.t(), world.other(-1), tag=1)
    dist.isend(torch.full((50_000, 4), float(world.rank)), world.other(), tag=1)
    gc.collect()
    dist.barrier()
    # A message behind the first one: when it is here, that one is, too.
    last = torch.zeros(1)
    receive = dist.irecv(last, world.other(-1), tag=1)
    dist.isend(torch.ones(1), world.other(), tag=1).wait()
    receive.wait()
    deadline = 1000
    while deadline and not (got == world.other(-1)).all():
        # The copy into the tensor with gaps is made by a thread of the library.
        deadline -= 1
        time.sleep(0.01)
    assert (got == world.other(-1)).all()


def test_a_message_of_another_length_is_refused(world):
    rank, size = world
    if size == 1:
        pytest.skip("torch refuses messages to oneself")
    if rank == 0:
        dist.send(torch.ones(3), 1)
        dist.isend(torch.ones(9), 1)
    elif rank == 1:
        with pytest.raises(RuntimeError, match="rank 0 has sent 12 bytes, but the tensor of the receive has 20"):
            dist.recv(torch.zeros(5), 0)
        with pytest.raises(RuntimeError, match="36"):
            dist.recv(torch.zeros(5), 0)
    dist.barrier()


def test_ranks_and_tags_out_of_range(world):
    group, ones = backend(), torch.ones(1)
    with pytest.raises(RuntimeError, match=f"send to rank {world.size} of {world.size}"):
        group.send([ones], world.size, 0)
    with pytest.raises(RuntimeError, match="recv from rank -1"):
        group.recv([ones], -1, 0)
    with pytest.raises(RuntimeError, match="tag -1, but tags begin at 0"):
        group.send([ones], world.other(), -1)


def test_barriers(world):
    for _ in range(20):
        dist.barrier()
    work = dist.barrier(async_op=True)
    work.wait()
    dist.monitored_barrier()
    dist.monitored_barrier(timeout=timedelta(seconds=30), wait_all_ranks=True)


def test_a_monitored_barrier_names_the_missing_rank(world):
    if world.size == 1:
        pytest.skip("needs two ranks")
    missing = world.size - 1
    dist.barrier()
    if world.rank != missing:
        with pytest.raises(RuntimeError) as error:
            dist.monitored_barrier(timeout=timedelta(seconds=3))
        text = str(error.value)
        assert f"{missing} failed to pass monitoredBarrier in 3000 ms" in text
        assert (world.rank == 0) or "Please check rank 0 logs for faulty rank" in text
    got = torch.zeros(1)
    if world.rank == missing:
        dist.recv(got, 0, tag=9)
    elif world.rank == 0:
        dist.send(got, missing, tag=9)
