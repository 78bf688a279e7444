"""States of compressed sums: made for a group of torch, and kept in checkpoints."""

from __future__ import annotations

from typing import Any

import torch

from . import _library


def new_state(backend: Any, codec: str, flat: torch.Tensor) -> Any:
    """A state without errors for vectors like this one."""
    return _library.load().CompressionState(backend, codec, flat.dtype, flat.numel())


def state_as_tensor(state: Any) -> torch.Tensor:
    """A state as bytes, which `torch.load` reads with `weights_only`."""
    return torch.frombuffer(bytearray(state.bytes()), dtype=torch.uint8)


def read_state(backend: Any, codec: str, dtype: torch.dtype, saved: torch.Tensor) -> Any:
    """The state that `state_as_tensor` has packed.

    Raises ValueError for a state of another rank, of another number of ranks, codec or type, or for other bytes.
    """
    content = saved.cpu().numpy().tobytes()
    try:
        return _library.load().CompressionState.of_bytes(backend, codec, dtype, content)
    except RuntimeError as error:
        raise ValueError(f"the errors in the checkpoint cannot be used: {error}") from error
