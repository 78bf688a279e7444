"""Groups, their options, the store, the log."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest

import unisono as un


def test_split(comm):
    group = comm.split(comm.rank % 2, -comm.rank)
    expected = [rank for rank in reversed(range(comm.size)) if rank % 2 == comm.rank % 2]
    assert group.size == len(expected) and group.job_ranks == expected
    own = np.array([comm.rank])
    group.all_reduce(own)
    assert own[0] == sum(expected)
    assert comm.split(None) is None


def test_members_make_a_group_alone(_unisono_job):
    world = _unisono_job
    members = list(range((world.size + 1) // 2))
    if world.rank in members:
        group = world.make_group("first half", members, timeout=30, label="half", spin=0.001)
        assert group.all_gather_object(world.rank) == members
    with pytest.raises(un.InvalidArgument, match=f"{world.size}"):
        world.make_group("too many", list(range(world.size + 1)))
    world.barrier()


def test_subgroup(comm):
    ranks = list(range(1, comm.size))
    group = comm.subgroup(ranks)
    assert (group is None) == (comm.rank == 0)
    if group is not None:
        assert (group.rank, group.size) == (comm.rank - 1, comm.size - 1)
        group.barrier()


def test_agree_and_shrink(comm):
    assert comm.agree(True) is True
    assert comm.agree(comm.rank != 0) is False
    shrunk = comm.shrink()
    assert shrunk.new_ranks == list(range(comm.size))
    assert shrunk.communicator.size == comm.size
    shrunk.communicator.barrier()


def test_monitored_barrier(comm):
    comm.monitored_barrier(30)


def test_options(comm):
    ring = comm.with_options(algorithm="ring", label="gradients", deterministic=False)
    own = np.ones(100)
    ring.all_reduce(own)
    assert (own == comm.size).all()
    if comm.size > 1:
        with pytest.raises(un.Error, match="no such algorithm|rung"):
            comm.with_options(algorithm="rung").all_reduce(own)
    with pytest.raises(un.InvalidArgument, match="more than 32 bytes"):
        comm.with_options(label="x" * 33).barrier()
    with pytest.raises(ValueError, match="timeout"):
        comm.with_options(timeout=-1)
    same = [np.random.default_rng(rank).random(1000) for rank in range(comm.size)][comm.rank]
    first, second = same.copy(), same.copy()
    comm.with_options(deterministic=True).all_reduce(first)
    comm.with_options(deterministic=True).all_reduce(second)
    assert first.tobytes() == second.tobytes()


def test_store(_unisono_job):
    world = _unisono_job
    store = world.store().prefixed("test_store/")
    store.set(f"rank {world.rank}", str(world.rank).encode())
    for rank in range(world.size):
        assert store.get(f"rank {rank}", timeout=30) == str(rank).encode()
    store.add("arrived", 1)
    world.barrier()
    assert store.add("arrived", 0) == world.size
    assert store.try_get("nothing") is None
    with pytest.raises(un.StoreTimeout, match="never") as caught:
        store.get("never", timeout=0.05)
    assert isinstance(caught.value, TimeoutError) and caught.value.usable
    world.barrier()
    if world.rank == 0:
        assert store.compare_and_set("leader", b"", b"0") == b"0"
        assert store.count() == world.size + 2
        assert store.delete("leader") and not store.delete("leader")
        store.wait(["arrived"], timeout=1)
    world.barrier()


def test_log(_unisono_job):
    world = _unisono_job
    world.start_log()
    for _ in range(3):
        world.with_options(log_name="loss").all_reduce(np.ones(16, "float32"))
    world.stop_log()
    rows = {row["name"]: row for row in json.loads(world.log_json())["rows"]}
    assert rows["loss"]["count"] == 3 and rows["loss"]["bytes_max"] == 64
    assert "loss" in world.log_table()
    if world.size > 1:
        assert json.loads(world.flight_record())


def test_started_calls(comm):
    own, total = np.full(1000, float(comm.rank)), sum(range(comm.size))
    work = comm.all_reduce_async(own)
    assert work.wait(60) is own and work.done() and work.wait() is own
    assert (own == total).all() and repr(work) == "Work(done=True)"
    works = [comm.all_reduce_async(np.full(10, float(index))) for index in range(5)]
    assert [result[0] for result in un.wait_all(works)] == [index * comm.size for index in range(5)]
    gathered = comm.all_gather_async(np.array([comm.rank])).wait()
    assert gathered.ravel().tolist() == list(range(comm.size))
    assert comm.barrier_async().wait() is None


def test_await(comm):
    async def main():
        own = np.full(10, 1.0)
        first = comm.all_reduce_async(own)
        assert await first is own
        works = [comm.all_reduce_async(np.full(3, float(index))) for index in range(4)]
        results = await asyncio.gather(*map(waited, works))
        return [result[0] for result in results]

    async def waited(work):
        return await work

    assert asyncio.run(main()) == [index * comm.size for index in range(4)]


def test_refused_calls_do_not_start(comm):
    with pytest.raises(un.InvalidArgument, match="sum is not defined on bool"):
        comm.all_reduce_async(np.ones(1, "bool")).wait()


def test_facts(comm):
    assert comm.size == len(comm.hosts) and comm.local_size == comm.size and comm.local_rank == comm.rank
    assert repr(comm).startswith(f"Communicator(rank {comm.rank} of {comm.size}")
    assert un.is_initialized()
