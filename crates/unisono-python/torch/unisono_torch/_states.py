"""States of compressed sums: made for a group of torch, and kept in checkpoints."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from . import _library


def backend_of(group: Any | None) -> Any:
    """This library's backend in a group; None is the default group.

    Raises TypeError where tensors of the CPU have another backend.
    """
    found = (group or dist.group.WORLD)._get_backend(torch.device("cpu"))
    # TORCH_DISTRIBUTED_DEBUG=DETAIL puts a wrapper around a backend.
    found = getattr(found, "wrapped_pg", found)
    if not isinstance(found, _library.load().Backend):
        raise TypeError(
            f"unisono_torch: the group has the backend {found.name()!r} for the CPU, which sends no compressed sums; "
            'init_process_group("unisono") or new_group(backend="unisono") make one that does'
        )
    return found


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
