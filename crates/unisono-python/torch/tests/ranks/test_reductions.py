"""Calls that reduce, against sums of the same tensors in the test."""

from __future__ import annotations

import functools
import operator

import pytest
import torch
import torch.distributed as dist
from conftest import backend
from elements import COMPLEX, FLOATS, INTEGERS, RARE, SMALL_FLOATS, name, pattern, small_numbers

Op = dist.ReduceOp

ARITHMETIC = {Op.SUM: operator.add, Op.PRODUCT: operator.mul}
ORDER = {
    Op.MIN: lambda left, right: left if left <= right else right,
    Op.MAX: lambda left, right: left if left >= right else right,
}
BITS = {Op.BAND: operator.and_, Op.BOR: operator.or_, Op.BXOR: operator.xor}

CASES = [
    *[(dtype, op) for dtype in INTEGERS for op in [*ARITHMETIC, *ORDER, *BITS]],
    *[(dtype, op) for dtype in [*FLOATS, *SMALL_FLOATS] for op in [*ARITHMETIC, *ORDER]],
    *[(dtype, Op.SUM) for dtype in COMPLEX],
]
FUNCTIONS = {**ARITHMETIC, **ORDER, **BITS}


def reduced(tensors: list[torch.Tensor], op: Op) -> list[complex]:
    """The elements of the result, computed as numbers of Python."""
    return [functools.reduce(FUNCTIONS[op], column) for column in zip(*(values(tensor) for tensor in tensors))]


def values(tensor: torch.Tensor) -> list[complex]:
    """The elements as numbers of Python, also of types that torch cannot list."""
    wide = tensor.to(torch.float32) if tensor.dtype in SMALL_FLOATS else tensor
    return [int(one) for one in wide.tolist()] if not wide.is_complex() else wide.tolist()


def as_type(numbers: list[complex], dtype: torch.dtype) -> list[complex]:
    return values(torch.tensor(numbers).to(dtype)) if dtype not in INTEGERS else [int(number) for number in numbers]


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, *SMALL_FLOATS, *COMPLEX], ids=name)
def test_all_reduce(world, random_numbers, dtype):
    for op in [op for known, op in CASES if known is dtype]:
        for count in (0, 1, 7, 1000):
            tensors = small_numbers(random_numbers, dtype, count, world)
            own = tensors[world.rank].clone()
            assert dist.all_reduce(own, op) is None
            assert values(own) == as_type(reduced(tensors, op), dtype), op

            own = tensors[world.rank].clone()
            work = dist.all_reduce(own, op, async_op=True)
            assert work.wait() and work.is_completed() and work.is_success()
            assert values(own) == as_type(reduced(tensors, op), dtype), op


def test_truth_values(world, random_numbers):
    for op, function in [
        (Op.SUM, operator.or_),
        (Op.PRODUCT, operator.and_),
        (Op.MAX, operator.or_),
        (Op.MIN, operator.and_),
        (Op.BOR, operator.or_),
        (Op.BAND, operator.and_),
        (Op.BXOR, operator.xor),
    ]:
        tensors = [torch.randint(0, 2, (65,), generator=random_numbers).bool() for _ in range(world.size)]
        own = tensors[world.rank].clone()
        dist.all_reduce(own, op)
        assert own.tolist() == functools.reduce(function, tensors).tolist(), op
        # A sum of truth values is a truth value.
        assert set(own.view(torch.uint8).tolist()) <= {0, 1}


@pytest.mark.parametrize("dtype", [*FLOATS, *COMPLEX], ids=name)
def test_average(world, dtype):
    own = torch.full((33,), float(world.rank), dtype=dtype)
    dist.all_reduce(own, Op.AVG)
    mean = (world.size - 1) / 2
    torch.testing.assert_close(own, torch.full((33,), mean, dtype=dtype))

    own = torch.full((world.size,), float(world.rank), dtype=dtype)
    share = torch.zeros(1, dtype=dtype)
    dist.reduce_scatter_tensor(share, own, Op.AVG)
    torch.testing.assert_close(share, torch.full((1,), mean, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8], ids=name)
def test_averages_of_whole_numbers_have_no_fraction(world, dtype):
    own = torch.full((9,), world.rank, dtype=dtype)
    dist.all_reduce(own, Op.AVG)
    assert own.tolist() == [sum(range(world.size)) // world.size] * 9


@pytest.mark.parametrize("factor", [0.5, torch.tensor(0.5)], ids=["number", "tensor"])
def test_sums_with_a_factor(world, factor):
    own = torch.full((9,), world.rank + 1.0)
    dist.all_reduce(own, dist._make_nccl_premul_sum(factor))
    assert own.tolist() == [0.5 * world.size * (world.size + 1) / 2] * 9


def test_special_floats(world):
    """The order of infinities and zeros is that of numbers; a NaN of one rank is seen by all."""
    own = torch.tensor([float("inf"), -float("inf"), 1.0 * world.rank, float("nan") if world.rank == 0 else 1.0])
    highest = own.clone()
    dist.all_reduce(highest, Op.MAX)
    assert highest[:3].tolist() == [float("inf"), -float("inf"), world.size - 1.0]
    dist.all_reduce(own)
    assert own[:2].tolist() == [float("inf"), -float("inf")] and own[3].isnan()


@pytest.mark.parametrize(
    "dtype, op, reason",
    [
        *[(dtype, op, "bit") for dtype in [torch.float32, torch.bfloat16] for op in BITS],
        (torch.bool, Op.AVG, "avg"),
        # torch makes two halves of a complex one, and refuses more than sums of complex numbers itself.
        *[(dtype, Op.SUM, "bytes|opaque") for dtype in RARE if not dtype.is_complex],
    ],
    ids=name,
)
def test_reductions_without_meaning_are_refused(world, dtype, op, reason):
    own = pattern(dtype, 8, world.rank)
    before = own.untyped_storage().tolist()
    for is_async in (False, True):
        with pytest.raises(RuntimeError, match=f"unisono: .*({reason})"):
            work = dist.all_reduce(own, op, async_op=is_async)
            work.wait()
    assert own.untyped_storage().tolist() == before
    # The group goes on.
    ones = torch.ones(2)
    dist.all_reduce(ones)
    assert ones.tolist() == [world.size] * 2


def test_reduce(world, random_numbers):
    for root in range(world.size):
        tensors = small_numbers(random_numbers, torch.float64, 12, world)
        own = tensors[world.rank].clone()
        dist.reduce(own, root)
        if world.rank == root:
            assert own.tolist() == reduced(tensors, Op.SUM)
        else:
            # Other backends leave partial sums in it. Here it stays.
            assert own.tolist() == tensors[world.rank].tolist()
    empty = torch.zeros(0)
    dist.reduce(empty, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16], ids=name)
def test_reduce_scatter(world, random_numbers, dtype):
    rank, size = world
    tensors = small_numbers(random_numbers, dtype, 6 * size, world)
    expected = as_type(reduced(tensors, Op.SUM), dtype)[6 * rank : 6 * rank + 6]

    out = torch.zeros(2, 3, dtype=dtype)
    dist.reduce_scatter_tensor(out, tensors[rank].clone())
    assert values(out.reshape(-1)) == expected

    out = torch.zeros(6, dtype=dtype)
    dist.reduce_scatter(out, list(tensors[rank].clone().chunk(size)))
    assert values(out) == expected

    # The output is a share of the input.
    whole = tensors[rank].clone()
    dist.reduce_scatter_tensor(whole[6 * rank : 6 * rank + 6], whole)
    assert values(whole[6 * rank : 6 * rank + 6]) == expected


def test_reduce_scatter_of_uneven_shares(world):
    rank, size = world
    inputs = [torch.full((other,), float(rank + other)) for other in range(size)]
    out = torch.zeros(rank)
    dist.reduce_scatter(out, inputs)
    assert out.tolist() == [sum(range(size)) + float(size * rank)] * rank


def test_tensors_with_gaps(world):
    size = world.size
    factor = size * (size + 1) / 2
    plain = torch.arange(24.0).reshape(4, 6)
    for view in (
        lambda tensor: tensor.t(),
        lambda tensor: tensor[:, ::2],
        lambda tensor: tensor[1:3, 1:4],
        lambda tensor: tensor.diagonal(),
        lambda tensor: tensor.reshape(2, 2, 6).permute(2, 0, 1),
        lambda tensor: tensor.reshape(1, 2, 2, 6).to(memory_format=torch.channels_last),
    ):
        whole = plain * (world.rank + 1)
        own = view(whole)
        others = whole.clone()
        dist.all_reduce(own)
        assert torch.equal(own, view(plain) * factor)
        view(others).copy_(own)
        assert torch.equal(whole, others), "elements beside the view are not touched"

    own = view(plain * (world.rank + 1))
    handle = dist.all_reduce(own, async_op=True)
    handle.wait()
    assert torch.equal(own, view(plain) * factor)


def test_conjugated_and_negated_views(world):
    """torch's functions refuse a conjugated tensor, and give the backend a copy of a negated one."""
    rank, size = world
    own = torch.full((5,), complex(rank, 1.0 + rank))
    total = sum(range(size))
    backend().allreduce([own.conj()]).wait()
    assert own.tolist() == [complex(total, total + size)] * 5

    # The imaginary part of a conjugate is a negated view.
    own = torch.full((5,), complex(rank, 1.0))
    negated = own.conj().imag
    assert negated.is_neg()
    backend().allreduce([negated]).wait()
    assert own.imag.tolist() == [float(size)] * 5

    own = torch.full((3,), complex(0.0, rank + 1.0)).conj()
    outputs = [torch.zeros(3, dtype=own.dtype) for _ in range(size)]
    backend().allgather([outputs], [own]).wait()
    assert [output[0].item() for output in outputs] == [complex(0.0, -other - 1.0) for other in range(size)]


def test_tensors_of_no_dimension_and_parameters(world):
    own = torch.tensor(2.0)
    dist.all_reduce(own)
    assert own.item() == 2.0 * world.size
    parameter = torch.nn.Parameter(torch.ones(3))
    dist.all_reduce(parameter.data)
    assert parameter.tolist() == [world.size] * 3


def test_sparse_sums(world):
    rank, size = world
    for is_async in (False, True):
        # An element that all have, one that each has alone, and one that is in it twice.
        indices = torch.tensor([[0, rank + 1, rank + 1], [0, 1, 1]])
        own = torch.sparse_coo_tensor(indices, torch.tensor([1.0, 2.0, 3.0]), (size + 1, 2))
        expected = torch.zeros(size + 1, 2)
        expected[0, 0] = size
        expected[1:, 1] = 5.0
        work = dist.all_reduce(own, async_op=is_async)
        if is_async:
            work.wait()
        assert own.is_sparse and torch.equal(own.to_dense(), expected)

    # Rank 0 has no element, values are vectors.
    count = rank
    indices = torch.arange(count).reshape(1, count)
    own = torch.sparse_coo_tensor(indices, torch.ones(count, 3), (size, 3))
    dist.all_reduce(own)
    expected = torch.tensor([[size - 1.0 - row] * 3 for row in range(size)])
    assert torch.equal(own.to_dense(), expected)

    with pytest.raises(RuntimeError, match="sparse tensors can only be added up"):
        dist.all_reduce(own, Op.MAX)
