"""Element types, and tensors of the ranks with known elements."""

from __future__ import annotations

import torch
from conftest import World

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
SMALL_FLOATS = [torch.float8_e4m3fn, torch.float8_e5m2]

# Types that only move.
RARE = [
    torch.complex32,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
    torch.uint1,
    torch.int4,
]

ALL = [*INTEGERS, *FLOATS, *COMPLEX, *SMALL_FLOATS, torch.bool, *RARE]


def name(value: object) -> str:
    """The name of a test's parameter."""
    return str(value).rsplit(".", 1)[-1]


def raw(tensor: torch.Tensor) -> bytes:
    """The bytes of a tensor's elements, in their order."""
    flat = tensor.detach().resolve_conj().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).tolist()) if flat.numel() else b""


def pattern(dtype: torch.dtype, count: int, rank: int) -> torch.Tensor:
    """Elements that every rank can compute: bytes in 0..2, which every type of element has."""
    width = torch.empty(0, dtype=dtype).element_size()
    numbers = (torch.arange(count * width) * 7 + rank * 3) % 2
    return numbers.to(torch.uint8).view(dtype)


def small_numbers(generator: torch.Generator, dtype: torch.dtype, count: int, world: World) -> list[torch.Tensor]:
    """The tensors of all ranks: 0, 1 or 2, whose sums and products every type has exactly."""
    numbers = [torch.randint(0, 3, (count,), generator=generator) for _ in range(world.size)]
    return [tensor.to(dtype) for tensor in numbers]
