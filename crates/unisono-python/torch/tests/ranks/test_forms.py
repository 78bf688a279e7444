"""Coalesced calls, objects, functional collectives, meshes, and DTensor."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as differentiable
from conftest import backend
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor


@pytest.mark.parametrize("is_async", [False, True])
def test_coalesced_all_reduce(world, is_async):
    tensors = [torch.full((length,), float(world.rank + length)) for length in (3, 0, 5, 1)]
    with dist._coalescing_manager(async_ops=is_async) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    if is_async:
        manager.wait()
    total = sum(range(world.size))
    assert [tensor.tolist() for tensor in tensors] == [
        [float(total + length * world.size)] * length for length in (3, 0, 5, 1)
    ]


@pytest.mark.parametrize("is_async", [False, True])
def test_coalesced_all_gather_and_reduce_scatter(world, is_async):
    rank, size = world
    inputs = [torch.full((length, 2), float(rank)) for length in (3, 1, 0)]
    outputs = [torch.zeros(length * size, 2) for length in (3, 1, 0)]
    with dist._coalescing_manager(async_ops=is_async) as manager:
        for output, own in zip(outputs, inputs):
            dist.all_gather_into_tensor(output, own)
    if is_async:
        manager.wait()
    for output, length in zip(outputs, (3, 1, 0)):
        assert output[:, 0].tolist() == [float(other) for other in range(size) for _ in range(length)]

    inputs = [torch.arange(length * size * 2.0).reshape(-1, 2) + rank for length in (3, 1)]
    wanted = [
        torch.arange(length * size * 2.0).reshape(size, length, 2)[rank] * size + sum(range(size)) for length in (3, 1)
    ]
    outputs = [torch.zeros(length, 2) for length in (3, 1)]
    with dist._coalescing_manager(async_ops=is_async) as manager:
        for output, own in zip(outputs, inputs):
            dist.reduce_scatter_tensor(output, own)
    if is_async:
        manager.wait()
    assert all(torch.equal(output, right) for output, right in zip(outputs, wanted))


def test_all_gather_coalesced_into_lists(world):
    rank, size = world
    inputs = [torch.full((3,), float(rank)), torch.full((2, 2), 10.0 + rank)]
    outputs = [[torch.zeros(3), torch.zeros(2, 2)] for _ in range(size)]
    backend().allgather_coalesced(outputs, inputs).wait()
    for other, (first, second) in enumerate(outputs):
        assert first.tolist() == [float(other)] * 3 and second.tolist() == [[10.0 + other] * 2] * 2


def test_coalesced_all_gather_of_several_types(world):
    rank, size = world
    inputs = [torch.full((3,), float(rank)), torch.full((2,), rank, dtype=torch.int64)]
    outputs = [torch.zeros(3 * size), torch.zeros(2 * size, dtype=torch.int64)]
    with dist._coalescing_manager():
        for output, own in zip(outputs, inputs):
            dist.all_gather_into_tensor(output, own)
    assert outputs[0].tolist() == [float(other) for other in range(size) for _ in range(3)]
    assert outputs[1].tolist() == [other for other in range(size) for _ in range(2)]


def test_objects(world):
    rank, size = world
    own = {"rank": rank, "text": "x" * 1000 * rank, "tensor": torch.full((3,), float(rank))}
    objects: list = [None] * size
    dist.all_gather_object(objects, own)
    assert [len(one["text"]) for one in objects] == [1000 * other for other in range(size)]
    assert [one["tensor"].tolist() for one in objects] == [[float(other)] * 3 for other in range(size)]

    for root in range(size):
        objects = [{"of": rank}, [rank] * rank, None]
        dist.broadcast_object_list(objects, root)
        assert objects == [{"of": root}, [root] * root, None]

        got: list = [None]
        dist.scatter_object_list(got, [("for", other, "x" * other) for other in range(size)], root)
        assert got == [("for", rank, "x" * rank)]

        gathered: list | None = [None] * size if rank == root else None
        dist.gather_object(("from", rank), gathered, root)
        assert gathered is None or gathered == [("from", other) for other in range(size)]

    if size > 1:
        if rank == 0:
            dist.send_object_list([{"a": 1}, "b"], 1)
        elif rank == 1:
            objects = [None, None]
            assert dist.recv_object_list(objects, 0) == 0
            assert objects == [{"a": 1}, "b"]


def test_functional_collectives(world):
    rank, size = world
    group = dist.group.WORLD
    own = torch.full((2, 3), float(rank))
    total = float(sum(range(size)))
    result = functional.all_reduce(own, "sum", group)
    assert (result + 0).tolist() == [[total] * 3] * 2 and own.tolist() == [[float(rank)] * 3] * 2
    assert (functional.all_reduce(own, "avg", group) + 0).tolist() == [[total / size] * 3] * 2
    gathered = functional.all_gather_tensor(own, 1, group)
    assert gathered.shape == (2, 3 * size) and gathered[0].tolist() == [float(o) for o in range(size) for _ in range(3)]
    shares = functional.reduce_scatter_tensor(torch.full((2 * size, 3), float(rank)), "sum", 0, group)
    assert shares.tolist() == [[total] * 3] * 2
    assert functional.broadcast(own, size - 1, group).tolist() == [[size - 1.0] * 3] * 2
    sums = functional.all_reduce_coalesced([own, own + 1], "sum", group)
    assert [one[0, 0].item() for one in sums] == [total, total + size]
    both = functional.all_gather_into_tensor_coalesced([own, own[:1] + 10], group)
    assert [one[-1, 0].item() for one in both] == [size - 1.0, size + 9.0]
    parts = functional.reduce_scatter_tensor_coalesced(
        [torch.full((size,), 1.0), torch.full((2 * size,), 2.0)], "sum", [0, 0], group
    )
    assert [one.tolist() for one in parts] == [[float(size)], [2.0 * size] * 2]
    exchanged = functional.all_to_all_single(
        torch.full((size,), float(rank)), output_split_sizes=[1] * size, input_split_sizes=[1] * size, group=group
    )
    assert exchanged.tolist() == [float(other) for other in range(size)]


def test_gradients_go_through_collectives(world):
    rank, size = world
    own = torch.full((3,), 2.0, requires_grad=True)
    differentiable.all_reduce(own * (rank + 1)).sum().backward()
    assert own.grad.tolist() == [size * (rank + 1.0)] * 3

    own = torch.full((2,), float(rank), requires_grad=True)
    gathered = differentiable.all_gather(own)
    sum(part.sum() * (other + 1) for other, part in enumerate(gathered)).backward()
    assert own.grad.tolist() == [size * (rank + 1.0)] * 2


def test_tensors_of_a_mesh(world):
    rank, size = world
    mesh = init_device_mesh("cpu", (size,))
    whole = torch.arange(4.0 * size).reshape(2 * size, 2)
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    assert torch.equal(sharded.to_local(), whole[2 * rank : 2 * rank + 2])
    assert torch.equal(sharded.full_tensor(), whole)
    assert torch.equal(sharded.redistribute(mesh, [Replicate()]).to_local(), whole)
    assert torch.equal(sharded.redistribute(mesh, [Shard(1)]).full_tensor(), whole)
    partial = DTensor.from_local(whole.clone(), mesh, [Partial()])
    assert torch.equal(partial.full_tensor(), whole * size)
    product = sharded @ distribute_tensor(torch.eye(2), mesh, [Replicate()])
    assert torch.equal(product.full_tensor(), whole)
    # Rows that no number of ranks divides.
    odd = torch.arange(3.0 * size - 1)
    assert torch.equal(distribute_tensor(odd, mesh, [Shard(0)]).full_tensor(), odd)


def test_a_mesh_of_two_dimensions(world):
    if world.size != 4:
        pytest.skip("needs four ranks")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
    own = torch.tensor([float(world.rank)])
    dist.all_reduce(own, group=mesh.get_group("rows"))
    assert own.item() == [2.0, 4.0, 2.0, 4.0][world.rank]
    own = torch.tensor([float(world.rank)])
    dist.all_reduce(own, group=mesh["columns"].get_group())
    assert own.item() == [1.0, 1.0, 5.0, 5.0][world.rank]
    whole = torch.arange(16.0).reshape(4, 4)
    both = distribute_tensor(whole, mesh, [Shard(0), Shard(1)])
    assert both.to_local().shape == (2, 2) and torch.equal(both.full_tensor(), whole)
