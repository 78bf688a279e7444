"""Buffers as mpi4py writes them: `array`, `[array, MPI.DOUBLE]`, `[array, counts, displacements, MPI.DOUBLE]`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from . import InvalidArgument


class Datatype:
    """The type of a buffer's elements."""

    def __init__(self, name: str, dtype: str, size: int) -> None:
        self.name = name
        self.dtype = dtype
        self.size = size

    def Get_size(self) -> int:
        """Bytes of an element."""
        return self.size

    def __repr__(self) -> str:
        return f"MPI.{self.name}"


DATATYPES = {
    name: Datatype(name, dtype, size)
    for name, dtype, size in (
        ("BYTE", "u8", 1),
        ("CHAR", "i8", 1),
        ("SIGNED_CHAR", "i8", 1),
        ("UNSIGNED_CHAR", "u8", 1),
        ("SHORT", "i16", 2),
        ("UNSIGNED_SHORT", "u16", 2),
        ("INT", "i32", 4),
        ("UNSIGNED", "u32", 4),
        ("LONG", "i64", 8),
        ("UNSIGNED_LONG", "u64", 8),
        ("LONG_LONG", "i64", 8),
        ("UNSIGNED_LONG_LONG", "u64", 8),
        ("FLOAT", "f32", 4),
        ("DOUBLE", "f64", 8),
        ("COMPLEX", "complex64", 8),
        ("DOUBLE_COMPLEX", "complex128", 16),
        ("C_FLOAT_COMPLEX", "complex64", 8),
        ("C_DOUBLE_COMPLEX", "complex128", 16),
        ("BOOL", "bool", 1),
        ("C_BOOL", "bool", 1),
        ("INT8_T", "i8", 1),
        ("INT16_T", "i16", 2),
        ("INT32_T", "i32", 4),
        ("INT64_T", "i64", 8),
        ("UINT8_T", "u8", 1),
        ("UINT16_T", "u16", 2),
        ("UINT32_T", "u32", 4),
        ("UINT64_T", "u64", 8),
    )
}

BYTE = DATATYPES["BYTE"]
CHAR = DATATYPES["CHAR"]
INT = DATATYPES["INT"]
LONG = DATATYPES["LONG"]
FLOAT = DATATYPES["FLOAT"]
DOUBLE = DATATYPES["DOUBLE"]
COMPLEX = DATATYPES["COMPLEX"]
DOUBLE_COMPLEX = DATATYPES["DOUBLE_COMPLEX"]


class _InPlace:
    def __repr__(self) -> str:
        return "MPI.IN_PLACE"


IN_PLACE = _InPlace()


class Buffer:
    """An array, the type that the caller gives its elements, and where the ranks' parts are."""

    def __init__(
        self,
        array: Any,
        dtype: str | None = None,
        counts: Sequence[int] | None = None,
        displacements: Sequence[int] | None = None,
    ) -> None:
        self.array = array
        self.dtype = dtype
        self.counts = counts
        self.displacements = displacements

    def parts(self, ranks: int) -> list[Any]:
        """A part of the array for each rank. Without counts the array is divided evenly."""
        flat = _flat(self.array)
        counts = self.counts
        if counts is None:
            if len(flat) % ranks:
                raise InvalidArgument(f"{len(flat)} elements do not divide among {ranks} ranks", usable=True)
            counts = [len(flat) // ranks] * ranks
        starts = self.displacements
        if starts is None:
            starts = [0, *accumulate(counts)][:-1]
        if len(counts) != ranks or len(starts) != ranks:
            raise InvalidArgument(f"{len(counts)} counts and {len(starts)} displacements for {ranks} ranks", usable=True)
        ends = [start + count for start, count in zip(starts, counts)]
        if any(start < 0 or count < 0 for start, count in zip(starts, counts)) or max(ends) > len(flat):
            raise InvalidArgument(f"parts {list(zip(starts, ends))} of an array of {len(flat)} elements", usable=True)
        return [flat[start:end] for start, end in zip(starts, ends)]


def _flat(array: Any) -> Any:
    """The array in one dimension, in the same memory."""
    try:
        import numpy
    except ImportError:
        return memoryview(array)
    view = numpy.asarray(array)
    if not view.flags.c_contiguous:
        raise InvalidArgument("its elements do not follow each other; numpy.ascontiguousarray gives a copy", usable=True)
    return view.reshape(-1)


def buffer(spec: Any) -> Buffer:
    """The buffer of an argument."""
    if spec is None or spec is IN_PLACE:
        raise InvalidArgument(f"{spec!r} where an array is needed", usable=True)
    if not isinstance(spec, (list, tuple)):
        return Buffer(spec)
    array, *rest = spec
    datatype: Datatype | None = None
    if rest and isinstance(rest[-1], (Datatype, str)):
        last = rest.pop()
        datatype = DATATYPES.get(last) if isinstance(last, str) else last
        if datatype is None:
            raise InvalidArgument(f"datatype {last!r} is not one of {', '.join(DATATYPES)}", usable=True)
    if len(rest) == 1 and isinstance(rest[0], tuple) and len(rest[0]) == 2 and not isinstance(rest[0][0], int):
        rest = list(rest[0])
    if len(rest) > 2:
        raise InvalidArgument(f"a buffer of {len(spec)} parts; it is [array, counts, displacements, type]", usable=True)
    if datatype is BYTE:
        array = memoryview(array).cast("B")
        dtype = None
    else:
        dtype = None if datatype is None else datatype.dtype
    if rest and isinstance(rest[0], int):
        start = rest[1] if len(rest) == 2 else 0
        return Buffer(_flat(array)[start : start + rest[0]], dtype)
    counts = [int(count) for count in rest[0]] if rest and rest[0] is not None else None
    starts = [int(start) for start in rest[1]] if len(rest) == 2 and rest[1] is not None else None
    return Buffer(array, dtype, counts, starts)
