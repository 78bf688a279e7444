"""Collectives that move elements, against what each rank is known to have."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from conftest import backend
from elements import ALL, name, pattern, raw


@pytest.mark.parametrize("dtype", ALL, ids=name)
def test_every_type_moves(world, dtype):
    rank, size = world
    count = 6
    wanted = [raw(pattern(dtype, count, other)) for other in range(size)]

    def zeros(length: int = count) -> torch.Tensor:
        return torch.zeros(length * pattern(dtype, 1, 0).element_size(), dtype=torch.uint8).view(dtype)

    # torch cannot take parts of types narrower than a byte, so the backend is called beneath its functions.
    group = backend()
    for root in range(size):
        own = pattern(dtype, count, rank)
        options = dist.BroadcastOptions()
        options.rootRank = root
        group.broadcast([own], options).wait()
        assert raw(own) == wanted[root]

        outputs = [[zeros() for _ in range(size)]] if rank == root else []
        options = dist.GatherOptions()
        options.rootRank = root
        group.gather(outputs, [pattern(dtype, count, rank)], options).wait()
        assert not outputs or [raw(output) for output in outputs[0]] == wanted

        own = zeros()
        inputs = [[pattern(dtype, count, other) for other in range(size)]] if rank == root else []
        options = dist.ScatterOptions()
        options.rootRank = root
        group.scatter([own], inputs, options).wait()
        assert raw(own) == wanted[rank]

    outputs = [zeros() for _ in range(size)]
    group.allgather([outputs], [pattern(dtype, count, rank)]).wait()
    assert [raw(output) for output in outputs] == wanted

    whole = zeros(count * size)
    group._allgather_base(whole, pattern(dtype, count, rank)).wait()
    assert raw(whole) == b"".join(wanted)

    outputs = [zeros() for _ in range(size)]
    group.alltoall(outputs, [pattern(dtype, count, rank) for _ in range(size)]).wait()
    assert [raw(output) for output in outputs] == wanted


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_broadcast_and_scatter_and_gather(world, count):
    rank, size = world
    for root in range(size):
        own = torch.full((count,), float(rank))
        dist.broadcast(own, root)
        assert own.tolist() == [float(root)] * count

        own = torch.zeros(count)
        shares = [torch.full((count,), 10.0 * root + other) for other in range(size)]
        dist.scatter(own, shares if rank == root else None, root)
        assert own.tolist() == [10.0 * root + rank] * count

        outputs = [torch.zeros(count) for _ in range(size)] if rank == root else None
        dist.gather(torch.full((count,), float(rank)), outputs, root)
        assert outputs is None or [output.tolist() for output in outputs] == [[float(k)] * count for k in range(size)]


def test_gather_into_one_tensor(world):
    if not hasattr(dist, "gather_into_tensor"):
        pytest.skip("this torch has no gather_into_tensor")
    rank, size = world
    for root in range(size):
        output = torch.zeros(size, 3) if rank == root else None
        dist.gather_into_tensor(torch.full((3,), float(rank)), output, dst=root)
        assert output is None or output[:, 0].tolist() == [float(other) for other in range(size)]


def test_all_gather_of_uneven_tensors(world):
    rank, size = world
    outputs = [torch.zeros(other) for other in range(size)]
    dist.all_gather(outputs, torch.full((rank,), float(rank)))
    assert [output.tolist() for output in outputs] == [[float(other)] * other for other in range(size)]


def test_all_gather_whose_input_is_part_of_its_output(world):
    rank, size = world
    wanted = [float(other) for other in range(size) for _ in range(4)]
    # This rank's share, which is where it belongs; the first one; and one between two shares.
    for start in (4 * rank, 0, min(2, 4 * size - 4)):
        for is_async in (False, True):
            output = torch.full((4 * size,), -1.0)
            own = output[start : start + 4].fill_(rank)
            work = dist.all_gather_into_tensor(output, own, async_op=is_async)
            if is_async:
                work.wait()
            assert output.tolist() == wanted

    output = torch.full((4 * size,), -1.0)
    shares = list(output.chunk(size))
    dist.all_gather(shares, shares[rank].fill_(rank))
    assert output.tolist() == wanted


def test_all_gather_with_gaps(world):
    rank, size = world
    output = torch.zeros(3, 2 * size)
    dist.all_gather_into_tensor(output.t(), torch.full((2, 3), float(rank)))
    assert output[0].tolist() == [float(other) for other in range(size) for _ in range(2)]

    outputs = [torch.zeros(4, 2)[:, 0] for _ in range(size)]
    dist.all_gather(outputs, torch.arange(12.0).reshape(4, 3)[:, 1] + rank)
    assert outputs[-1].tolist() == [size + 0.0, size + 3.0, size + 6.0, size + 9.0]


def test_all_to_all_of_lists(world):
    rank, size = world
    for length in (lambda sender, receiver: 3, lambda sender, receiver: 2 * sender + receiver):
        inputs = [torch.full((length(rank, other),), 10.0 * rank + other) for other in range(size)]
        outputs = [torch.zeros(length(other, rank)) for other in range(size)]
        dist.all_to_all(outputs, inputs)
        wanted = [[10.0 * other + rank] * length(other, rank) for other in range(size)]
        assert [output.tolist() for output in outputs] == wanted


@pytest.mark.parametrize("row", [(), (3,), (2, 2)], ids=str)
def test_all_to_all_with_splits(world, row):
    rank, size = world
    whole = torch.cat([torch.full((2, *row), 10.0 * rank + other) for other in range(size)])
    output = torch.zeros(2 * size, *row)
    dist.all_to_all_single(output, whole)
    assert output.reshape(2 * size, -1)[:, 0].tolist() == [10.0 * other + rank for other in range(size) for _ in (0, 1)]

    # Rank k sends k + j rows to rank j; rank 0 sends itself none.
    sent = [rank + other for other in range(size)]
    whole = torch.cat([torch.full((rank + other, *row), 10.0 * rank + other) for other in range(size)])
    output = torch.full((sum(sent), *row), -1.0)
    dist.all_to_all_single(output, whole, output_split_sizes=sent, input_split_sizes=sent)
    wanted = [10.0 * other + rank for other in range(size) for _ in range(other + rank)]
    assert [line[0] for line in output.reshape(sum(sent), -1).tolist()] == wanted if sum(sent) else True

    # Each side says the splits of one tensor only.
    even = [2] * size
    whole = torch.full((2 * size, *row), float(rank))
    output = torch.zeros(2 * size, *row)
    of_output, of_input = (even, None) if rank % 2 else (None, even)
    dist.all_to_all_single(output, whole, output_split_sizes=of_output, input_split_sizes=of_input)
    assert output.reshape(2 * size, -1)[:, 0].tolist() == [float(other) for other in range(size) for _ in (0, 1)]


def test_all_to_all_with_gaps(world):
    rank, size = world
    whole = (torch.arange(size * 3.0).reshape(3, size) + 100 * rank).t()
    output = torch.zeros(3, size).t()
    dist.all_to_all_single(output, whole)
    assert output.tolist() == [[100.0 * other + rank + size * k for k in range(3)] for other in range(size)]


def test_wrong_sizes_are_refused_with_the_numbers(world):
    rank, size = world
    ones = torch.ones(4)
    cases = [
        (lambda: dist.all_gather_into_tensor(torch.ones(4 * size + 1), ones), f"{4 * size + 1} elements"),
        (lambda: dist.reduce_scatter_tensor(torch.ones(3), torch.ones(3 * size + 1)), f"{3 * size + 1} elements"),
        (lambda: dist.all_gather([torch.ones(4)] * (size + 1), ones), f"{size + 1} tensors for {size} ranks"),
        (lambda: dist.all_gather([torch.ones(3)] * size, ones), "4 elements, but output .* has 3"),
        (lambda: dist.all_to_all([ones] * (size + 1), [ones] * (size + 1)), f"for {size} ranks"),
        (lambda: dist.all_to_all_single(torch.ones(size), torch.ones(size), [2] * size), "splits add up to"),
        (lambda: dist.all_to_all_single(torch.ones(size), torch.ones(size), [1] * (size + 1)), "splits for"),
        (lambda: dist.reduce_scatter(ones, [torch.ones(3)] * size), "3 elements, but the output .* has 4"),
    ]
    if size > 1:
        cases.append((lambda: dist.all_to_all_single(torch.ones(size + 1), torch.ones(size + 1)), "not divisible"))
    for call, reason in cases:
        with pytest.raises((RuntimeError, ValueError), match=reason):
            call()
    # Nothing has been sent, so all goes on.
    dist.all_reduce(ones)
    assert ones.tolist() == [size] * 4


def test_lists_that_mix_types_are_refused(world):
    rank, size = world
    mixed = [torch.ones(2) for _ in range(size - 1)] + [torch.ones(2, dtype=torch.float64)]
    if size == 1:
        mixed = [torch.ones(2, dtype=torch.float64)]
    with pytest.raises((RuntimeError, ValueError), match="type"):
        backend().allgather([mixed], [torch.ones(2)]).wait()


def test_tensors_of_another_device_are_refused(world):
    """torch itself does nothing with tensors of the device "meta", which have a shape only."""
    with pytest.raises(RuntimeError, match="takes tensors of the CPU, not of meta"):
        backend().allreduce([torch.ones(3, device="meta")])
    with pytest.raises(RuntimeError, match="takes dense tensors, not one of layout Sparse"):
        backend().broadcast([torch.eye(3).to_sparse()])


@pytest.mark.parametrize("count", [70_000, 3_000_001])
def test_long_tensors(world, count):
    rank, size = world
    own = torch.arange(count, dtype=torch.int64) + rank
    outputs = [torch.zeros(count, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(outputs, own)
    assert all(torch.equal(output, torch.arange(count) + other) for other, output in enumerate(outputs))
    dist.all_reduce(own)
    assert torch.equal(own, torch.arange(count) * size + sum(range(size)))


def test_a_root_may_send_an_expanded_tensor(world):
    tensor = torch.ones(1).expand(5) if world.rank == 0 else torch.zeros(5)
    dist.broadcast(tensor, 0)
    assert tensor.tolist() == [1.0] * 5
