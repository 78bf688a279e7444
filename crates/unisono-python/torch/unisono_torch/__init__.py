"""torch.distributed on unisono.

    import torch.distributed as dist
    dist.init_process_group("unisono")

is all a program needs: torch finds the package by its entry point. `cpu:unisono,cuda:nccl` names it for the CPU of a
program that has GPUs. `unisono_torch.compression` has compressed gradients for DDP, and 1-bit Adam.
"""

from __future__ import annotations

from typing import Any

from ._backend import NAME, Options, backend_of, create

__all__ = ["Options", "lost_ranks", "register", "register_early"]


def lost_ranks(group: Any | None = None) -> list[int]:
    """The ranks of a group that errors of this process have named as lost, for `dist.shrink_group`; None is the default
    group.
    """
    return backend_of(group).lost_ranks()


def register(name: str = NAME) -> None:
    """Makes the backend known to torch.distributed, which calls this when a program first names it.

    `name` is for tests: programs that insist on the name of another backend run on this one.
    """
    from torch.distributed import Backend

    if name.upper() not in Backend._plugins or name != NAME:
        Backend.register_backend(name, create, extended_api=True, devices=["cpu"])


def register_early() -> None:
    """As `register`, when torch is imported, in versions of torch that do not ask for a backend later."""
    from torch.distributed import Backend, is_available

    if is_available() and not hasattr(Backend, "_ensure_backend_registered"):
        register()
