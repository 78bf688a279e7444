"""Groups of some ranks, splits, shrinks, timeouts, and the wrapper of TORCH_DISTRIBUTED_DEBUG=DETAIL."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from conftest import backend


def total(group: dist.ProcessGroup | None = None) -> float:
    """The sum of the members' ranks in the default group."""
    own = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(own, group=group)
    return own.item()


def test_groups_of_some_ranks(world):
    rank, size = world
    for members in ([0], list(range(size)), list(range(0, size, 2)), [size - 1]):
        group = dist.new_group(members)
        if rank in members:
            assert total(group) == sum(members)
            assert dist.get_rank(group) == members.index(rank) and dist.get_world_size(group) == len(members)
            assert backend(group).rank() == members.index(rank)
            own = torch.tensor([float(rank)])
            dist.broadcast(own, members[-1], group=group)
            assert own.item() == members[-1]
            dist.destroy_process_group(group)
        else:
            assert group is dist.GroupMember.NON_GROUP_MEMBER
    assert total() == sum(range(size))


def test_a_group_in_another_order_of_ranks(world):
    rank, size = world
    members = list(reversed(range(size)))
    group = dist.new_group(members, sort_ranks=False)
    assert dist.get_rank(group) == size - 1 - rank
    outputs = [torch.zeros(1) for _ in members]
    dist.all_gather(outputs, torch.tensor([float(rank)]), group=group)
    assert [output.item() for output in outputs] == [float(other) for other in members]


def test_only_members_make_a_group(world):
    rank, size = world
    members = list(range(0, size, 2))
    if rank in members:
        group = dist.new_group(members, use_local_synchronization=True)
        assert total(group) == sum(members)
    assert total() == sum(range(size))


def test_the_same_ranks_again(world):
    """Groups of the same ranks are apart, also after one of them has ended."""
    groups = [dist.new_group() for _ in range(3)]
    works = []
    tensors = [torch.full((3,), float(k)) for k in range(3)]
    # Each rank begins with another group.
    for k in range(3):
        at = (k + world.rank) % 3
        works.append(dist.all_reduce(tensors[at], group=groups[at], async_op=True))
    for work in works:
        work.wait()
    assert [tensor[0].item() for tensor in tensors] == [float(k * world.size) for k in range(3)]
    for group in groups:
        dist.destroy_process_group(group)
        again = dist.new_group()
        assert total(again) == sum(range(world.size))
        dist.destroy_process_group(again)


def test_messages_in_a_group(world):
    if world.size < 2:
        pytest.skip("needs two ranks")
    members = [world.size - 2, world.size - 1]
    group = dist.new_group(members)
    if world.rank == members[0]:
        dist.send(torch.tensor([7.0]), members[1], group=group, tag=3)
    elif world.rank == members[1]:
        got = torch.zeros(1)
        assert dist.recv(got, group=group, tag=3) == members[0]
        assert got.item() == 7.0


def test_split_group(world):
    rank, size = world
    halves = [list(range(0, size, 2)), list(range(1, size, 2))]
    halves = [half for half in halves if half]
    # torch splits only a group that is bound to a device.
    dist.distributed_c10d._get_default_group().bound_device_id = torch.device("cpu:0")
    group = dist.split_group(split_ranks=halves)
    own = halves[rank % 2]
    assert dist.get_process_group_ranks(group) == own
    assert total(group) == sum(own)
    members = [size - 1]
    group = dist.split_group(split_ranks=[members])
    assert (group is dist.GroupMember.NON_GROUP_MEMBER) if rank not in members else total(group) == size - 1
    assert total() == sum(range(size))


def test_shrink_without_a_living_rank(world):
    rank, size = world
    if size < 2:
        pytest.skip("needs two ranks")
    excluded = size // 2
    part = dist.new_group()
    if rank == excluded:
        return
    rest = dist.shrink_group([excluded], group=part)
    members = [other for other in range(size) if other != excluded]
    assert dist.get_world_size(rest) == size - 1 and dist.get_rank(rest) == members.index(rank)
    assert total(rest) == sum(members)


def test_shrink_of_the_default_group(world):
    rank, size = world
    if size < 2:
        pytest.skip("needs two ranks")
    if rank == 0:
        return
    dist.shrink_group([0])
    assert dist.get_world_size() == size - 1 and dist.get_rank() == rank - 1
    own = torch.ones(2)
    dist.all_reduce(own)
    assert own.tolist() == [size - 1.0] * 2
    group = dist.new_group([0])
    if rank == 1:
        dist.all_reduce(own, group=group)
    dist.barrier()


def test_shrink_ends_calls_that_wait_for_the_excluded_rank(world):
    rank, size = world
    if size < 2:
        pytest.skip("needs two ranks")
    part = dist.new_group()
    if rank == size - 1:
        return
    work = dist.all_reduce(torch.ones(3), group=part, async_op=True)
    rest = dist.shrink_group([size - 1], group=part, shrink_flags=dist.distributed_c10d.SHRINK_ABORT)
    with pytest.raises(RuntimeError, match="abort"):
        work.wait()
    assert total(rest) == sum(range(size - 1))


def test_an_excluded_rank_is_told(world):
    if world.size < 2:
        pytest.skip("needs two ranks")
    with pytest.raises(RuntimeError, match="is excluded|excluded"):
        backend().shrink([world.rank], 0)
    dist.barrier()


def test_a_timeout_of_a_group(world):
    rank, size = world
    if size < 2:
        pytest.skip("needs two ranks")
    group = dist.new_group(timeout=timedelta(milliseconds=300))
    if rank == 0:
        with pytest.raises(RuntimeError) as error:
            dist.all_reduce(torch.ones(1), group=group)
        pattern = r"timeout in call .* at .*test_groups.py:\d+ timed out .*still awaited: rank 1"
        assert re.search(pattern, str(error.value))
    # Other groups are as they were.
    assert total() == sum(range(size))


def test_a_timeout_set_later(world):
    if world.size < 2:
        pytest.skip("needs two ranks")
    group = dist.new_group()
    dist.distributed_c10d._set_pg_timeout(timedelta(milliseconds=200), group)
    if world.rank == world.size - 1:
        with pytest.raises(RuntimeError, match="timeout in call .*200"):
            dist.barrier(group=group)
    assert total() == sum(range(world.size))


def test_an_abort_ends_a_call_of_another_rank(world):
    if world.size < 2:
        pytest.skip("needs two ranks")
    group = dist.new_group()
    if world.rank == 0:
        backend(group).abort()
    else:
        with pytest.raises(RuntimeError, match="rank 0 aborted"):
            dist.all_reduce(torch.ones(3), group=group)
    assert total() == sum(range(world.size))


def test_a_mismatch_names_both_lines(world):
    if world.size < 2:
        pytest.skip("needs two ranks")
    group = dist.new_group()
    with pytest.raises(RuntimeError) as error:
        if world.rank == 0:
            dist.all_reduce(torch.ones(3), group=group)
        else:
            dist.broadcast(torch.ones(3), 0, group=group)
    text = str(error.value)
    assert "all_reduce(3 x f32" in text and "broadcast(3 x f32" in text and text.count("test_groups.py:") == 2, text


def test_the_wrapper_of_detailed_debugging(world, monkeypatch):
    """torch puts its own group around every group, and compares calls over a group of Gloo."""
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    dist.set_debug_level_from_env()
    try:
        group = dist.new_group()
        assert total(group) == sum(range(world.size))
        if world.size > 1:
            with pytest.raises(RuntimeError, match="Detected mismatch between collectives on ranks"):
                if world.rank == 0:
                    dist.all_reduce(torch.ones(3), group=group)
                else:
                    dist.broadcast(torch.ones(3), 0, group=group)
    finally:
        monkeypatch.delenv("TORCH_DISTRIBUTED_DEBUG")
        dist.set_debug_level_from_env()


def test_ddp_and_its_hooks(world):
    """Gradients are the mean over the ranks, with every hook that does not compress."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    def gradients(hook, state) -> torch.Tensor:
        torch.manual_seed(1)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 3), bucket_cap_mb=0.00001)
        if hook is not None:
            model.register_comm_hook(state, hook)
        model(torch.full((2, 4), float(world.rank))).sum().backward()
        return torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()])

    mean = 2.0 * (world.size - 1) / 2
    wanted = torch.tensor([mean] * 12 + [2.0] * 3)
    power = powerSGD_hook.PowerSGDState(process_group=None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    for hook, state in [
        (None, None),
        (default_hooks.allreduce_hook, None),
        (default_hooks.fp16_compress_hook, None),
        (default_hooks.bf16_compress_hook, None),
        (powerSGD_hook.powerSGD_hook, power),
    ]:
        torch.testing.assert_close(gradients(hook, state), wanted, rtol=1e-2, atol=1e-2)
