"""Calls that reduce, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

import unisono as un

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]

ARITHMETIC = [(un.SUM, np.add), (un.PROD, np.multiply)]
ORDER = [(un.MIN, np.minimum), (un.MAX, np.maximum)]
BITS = [(un.BIT_AND, np.bitwise_and), (un.BIT_OR, np.bitwise_or), (un.BIT_XOR, np.bitwise_xor)]

CASES = [
    *[(dtype, *op) for dtype in INTEGERS for op in ARITHMETIC + ORDER + BITS],
    *[(dtype, *op) for dtype in FLOATS for op in ARITHMETIC + ORDER],
    *[(dtype, *op) for dtype in COMPLEX for op in ARITHMETIC],
    *[("bool", *op) for op in BITS],
]


def inputs(comm: un.Communicator, rng: np.random.Generator, dtype: str, count: int) -> list[np.ndarray]:
    """The arrays of all ranks: small whole numbers, whose sums and products every type has exactly."""
    arrays = [rng.integers(0, 3, count) for _ in range(comm.size)]
    return [array.astype(dtype) for array in arrays]


def reduced(arrays: list[np.ndarray], function: np.ufunc) -> np.ndarray:
    result = arrays[0].copy()
    for array in arrays[1:]:
        function(result, array, out=result)
    return result


@pytest.mark.parametrize("dtype, op, function", CASES, ids=lambda case: getattr(case, "__name__", str(case)))
def test_all_reduce(comm, rng, dtype, op, function):
    for count in (0, 1, 7, 1000):
        arrays = inputs(comm, rng, dtype, count)
        expected = reduced(arrays, function)
        own = arrays[comm.rank].copy()
        assert comm.all_reduce(own, op) is own
        assert own.tobytes() == expected.tobytes()

        own, out = arrays[comm.rank].copy(), np.zeros(count, dtype)
        assert comm.all_reduce(own, op, out=out) is out
        assert out.tobytes() == expected.tobytes() and own.tobytes() == arrays[comm.rank].tobytes()


@pytest.mark.parametrize("dtype", FLOATS)
def test_average(comm, rng, dtype):
    arrays = inputs(comm, rng, dtype, 33)
    own = arrays[comm.rank].copy()
    comm.all_reduce(own, un.AVG)
    expected = np.mean(np.stack(arrays).astype("float64"), axis=0)
    np.testing.assert_allclose(own.astype("float64"), expected, rtol=2e-3)


def test_operators_by_name_and_with_a_factor(comm):
    own = np.full(3, comm.rank + 1.0)
    comm.all_reduce(own, "max")
    assert (own == comm.size).all()

    own = np.ones(3)
    comm.all_reduce(own, un.Op.pre_mul_sum(comm.rank + 1.0))
    assert (own == comm.size * (comm.size + 1) / 2).all()


def test_an_operator_of_the_program_keeps_the_order_of_ranks(comm):
    first = un.Op.user(lambda left, right: left, name="first")
    own = np.full(1000, comm.rank + 5, dtype="int32")
    comm.all_reduce(own, first)
    assert (own == 5).all()

    def hypotenuse(left, right):
        return np.hypot(left, right)

    own = np.full(10, 2.0)
    comm.all_reduce(own, un.Op.user(hypotenuse, commutative=True))
    np.testing.assert_allclose(own, np.sqrt(4.0 * comm.size))


def test_an_exception_in_an_operator_ends_the_call_everywhere(comm):
    def fails(left, right):
        raise RuntimeError("no such sum")

    if comm.size == 1:
        pytest.skip("one rank reduces nothing")
    group = comm.duplicate()
    with pytest.raises(un.Panicked, match="no such sum"):
        group.all_reduce(np.ones(4), un.Op.user(fails))


@pytest.mark.parametrize("name", ["scan", "exscan"])
def test_prefixes(comm, rng, name):
    arrays = inputs(comm, rng, "int64", 17)
    own = arrays[comm.rank].copy()
    call = getattr(comm, name)
    assert call(own, un.SUM) is own
    end = comm.rank + (1 if name == "scan" else 0)
    expected = sum(arrays[:end], np.zeros(17, "int64")) if end else arrays[0]
    assert (own == expected).all()

    out = np.full(17, -1, "int64")
    call(arrays[comm.rank], un.SUM, out=out)
    assert (out == (expected if end else -1)).all()


def test_reduce(comm, rng):
    root = comm.size - 1
    arrays = inputs(comm, rng, "float64", 12)
    expected = reduced(arrays, np.add)
    result = comm.reduce(arrays[comm.rank], un.SUM, root)
    if comm.rank == root:
        assert (result == expected).all()
    else:
        assert result is None

    own = arrays[comm.rank].copy()
    result = comm.reduce(own, un.SUM, root, out=own if comm.rank == root else None)
    assert (result is own) == (comm.rank == root)
    assert (own == (expected if comm.rank == root else arrays[comm.rank])).all()


def test_reduce_scatter(comm, rng):
    size = comm.size
    arrays = inputs(comm, rng, "int32", 3 * size)
    expected = reduced(arrays, np.add).reshape(size, 3)[comm.rank]
    result = comm.reduce_scatter(arrays[comm.rank])
    assert result.shape == (3,) and (result == expected).all()
    result = comm.reduce_scatter(arrays[comm.rank].reshape(size, 3))
    assert result.shape == (3,) and (result == expected).all()

    rows = list(arrays[comm.rank].reshape(size, 3).copy())
    out = np.zeros(3, "int32")
    assert comm.reduce_scatter(rows, out=out) is out
    assert (out == expected).all()

    own = arrays[comm.rank].copy()
    comm.reduce_scatter(own, out=own)
    assert (own.reshape(size, 3)[comm.rank] == expected).all()

    counts = list(range(size))
    total = sum(counts)
    own = inputs(comm, rng, "int64", total)
    result = comm.reduce_scatter(own[comm.rank], counts=counts)
    starts = np.cumsum([0, *counts])
    assert (result == reduced(own, np.add)[starts[comm.rank] : starts[comm.rank + 1]]).all()


def test_lists_are_reduced_in_one_call(comm):
    arrays = [np.full(length, float(comm.rank)) for length in (3, 0, 5)]
    assert comm.all_reduce(arrays) is arrays
    total = sum(range(comm.size))
    assert all((array == total).all() for array in arrays)


def test_types_that_python_has_no_format_of(comm):
    """A bf16 is the upper half of an f32."""
    own = (np.full(5, 1.5, "float32").view("uint32") >> 16).astype("uint16")
    comm.all_reduce(own, dtype="bf16")
    summed = (own.astype("uint32") << 16).view("float32")
    assert (summed == 1.5 * comm.size).all()
    with pytest.raises(un.InvalidArgument, match="bf16 has 2 bytes, but the array's elements have 8"):
        comm.all_reduce(np.ones(3), dtype="bf16")
    with pytest.raises(un.InvalidArgument, match="not one of f64, f32"):
        comm.all_reduce(np.ones(3), dtype="f33")
