"""Handles and futures of asynchronous calls, events of the profiler, threads that call at once."""

from __future__ import annotations

import gc
import threading
from collections import Counter
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from conftest import backend


def test_handles(world):
    own = torch.full((1000,), float(world.rank))
    work = dist.all_reduce(own, async_op=True)
    assert work.wait() is True
    assert work.is_completed() and work.is_success() and work.exception() is None
    assert work.wait() is True, "a second wait has the same result"
    assert [result.data_ptr() for result in work.result()] == [own.data_ptr()]
    assert own[0].item() == sum(range(world.size))


def test_a_handle_is_seen_to_end_without_a_wait(world):
    own = torch.ones(5)
    work = dist.all_reduce(own, async_op=True)
    while not work.is_completed():
        pass
    assert own.tolist() == [world.size] * 5


def test_text_and_algorithm(world):
    work = backend().allreduce([torch.ones(64)])
    work.wait()
    text = repr(work)
    assert text.startswith("<unisono:all_reduce 1: done"), text
    if world.size > 1:
        assert work.algorithm and f" by {work.algorithm}>" in text
    assert repr(backend()) == f"<unisono rank {world.rank} of {world.size}>"
    assert backend().name() == "unisono" and dist.get_backend() == "unisono"


def test_many_calls_in_flight_end_in_the_order_of_their_calls(world):
    tensors = [torch.full((100 + k,), float(k)) for k in range(50)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in reversed(works):
        work.wait()
    assert [tensor[0].item() for tensor in tensors] == [float(k * world.size) for k in range(50)]


def test_dropped_handles_do_their_work(world):
    tensors = [torch.ones(3, 1000) for _ in range(20)]
    for tensor in tensors:
        dist.all_reduce(tensor.t(), async_op=True)
    gc.collect()
    dist.barrier()
    future = dist.all_reduce(torch.ones(1), async_op=True).get_future()
    future.wait()
    while not all((tensor == world.size).all() for tensor in tensors):
        pass


def test_futures(world):
    own = torch.full((4,), float(world.rank))
    future = dist.all_reduce(own, async_op=True).get_future()
    value = future.wait()
    assert [tensor.data_ptr() for tensor in value] == [own.data_ptr()]
    assert own[0].item() == sum(range(world.size))

    # Of a call that has ended before somebody asks.
    work = dist.all_reduce(own, async_op=True)
    work.wait()
    assert work.get_future().done()

    output = torch.zeros(4 * world.size)
    doubled = dist.all_gather_into_tensor(output, torch.ones(4), async_op=True).get_future().then(
        lambda done: done.value()[0] * 2
    )
    assert doubled.wait().tolist() == [2.0] * 4 * world.size

    total = torch.futures.collect_all(
        [dist.all_reduce(torch.full((2,), float(k)), async_op=True).get_future() for k in range(10)]
    ).wait()
    assert [done.value()[0][0].item() for done in total] == [float(k * world.size) for k in range(10)]


def test_a_future_waits_for_another(world):
    """As PowerSGD does: a function of a future starts the next call, and blocks until it has ended."""

    def second(done):
        factor = done.value()[0]
        return dist.all_reduce(factor * 2, async_op=True).get_future().wait()[0]

    def third(done):
        return dist.all_reduce(done.value() * 2, async_op=True).get_future().wait()[0]

    for _ in range(20):
        future = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(second).then(third)
        assert future.wait().tolist() == [4.0 * world.size**3] * 3


def test_an_exception_in_a_function_of_a_future(world):
    def fails(_):
        raise ValueError("no such gradient")

    future = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(fails)
    with pytest.raises(Exception, match="no such gradient"):
        future.wait()
    dist.barrier()


def test_sequence_numbers(world):
    group = dist.distributed_c10d._get_default_group()
    before = group._get_sequence_number_for_group()
    dist.all_reduce(torch.ones(1))
    work = dist.broadcast(torch.ones(1), 0, async_op=True)
    work.wait()
    dist.barrier()
    assert group._get_sequence_number_for_group() == before + 3


def test_a_call_with_a_timeout(world):
    """A wait that is too short raises, and the call goes on."""
    if world.size == 1:
        pytest.skip("needs two ranks")
    own = torch.ones(3)
    if world.rank == 0:
        work = dist.all_reduce(own, async_op=True)
        with pytest.raises(RuntimeError, match="has not ended within 50 ms"):
            work.wait(timedelta(milliseconds=50))
        assert not work.is_completed()
        dist.send(torch.ones(1), 1)
        work.wait()
    else:
        if world.rank == 1:
            dist.recv(torch.ones(1), 0)
        dist.all_reduce(own)
    assert own.tolist() == [world.size] * 3


CALLS = {
    "all_reduce": lambda ones, size: dist.all_reduce(ones),
    "broadcast": lambda ones, size: dist.broadcast(ones, 0),
    "reduce": lambda ones, size: dist.reduce(ones, 0),
    "all_gather": lambda ones, size: dist.all_gather_into_tensor(torch.zeros(4 * size), ones),
    "reduce_scatter": lambda ones, size: dist.reduce_scatter_tensor(ones, torch.ones(4 * size)),
    "all_to_all": lambda ones, size: dist.all_to_all_single(torch.ones(4 * size), torch.ones(4 * size)),
    "barrier": lambda ones, size: dist.barrier(),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_one_event_of_the_profiler(world, name):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        for _ in range(3):
            CALLS[name](torch.ones(4), world.size)
    events = Counter(event.name for event in profile.events())
    assert events[f"unisono:{name}"] == 3, events


def test_asynchronous_calls_are_one_event_each(world):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for work in [dist.all_reduce(torch.ones(4), async_op=True) for _ in range(3)]:
            work.wait()
        dist.all_reduce(torch.ones(4), async_op=True).get_future().wait()
    assert Counter(event.name for event in profile.events())["unisono:all_reduce"] == 4


def test_threads_with_groups_of_their_own(world):
    """Threads call at once, each in its group."""
    groups = [dist.new_group() for _ in range(4)]
    wrong: list[str] = []

    def calls(place: int) -> None:
        try:
            for k in range(50):
                own = torch.full((10 + k,), float(place + k))
                dist.all_reduce(own, group=groups[place])
                if own.tolist() != [float(world.size * (place + k))] * (10 + k):
                    wrong.append(f"{place} {k}: {own[0].item()}")
        except RuntimeError as error:
            wrong.append(str(error))

    threads = [threading.Thread(target=calls, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_threads_that_share_a_group_queue(world):
    """The same call of each thread, so that their order means nothing."""
    failed: list[str] = []

    def calls() -> None:
        try:
            for _ in range(50):
                own = torch.ones(8)
                dist.all_reduce(own)
                if own.tolist() != [float(world.size)] * 8:
                    failed.append(str(own))
        except RuntimeError as error:
            failed.append(str(error))

    threads = [threading.Thread(target=calls) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
