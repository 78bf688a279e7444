"""The function by which torch makes a group: the default one meets through torch's store, others are made of it."""

from __future__ import annotations

import collections
import os
from typing import TYPE_CHECKING, Any

from . import _library, _secret

if TYPE_CHECKING:
    from torch.distributed import Store

NAME = "unisono"

# The meetings of this process, by the store's place, the group's name and its ranks. All ranks of a group have as many.
_meetings: collections.Counter[tuple[object, ...]] = collections.Counter()


class Options:
    """Options of the default group: `dist.init_process_group("unisono", pg_options=unisono_torch.Options(...))`.

    secret_in_store: ranks on several hosts get the job's secret through torch's store, where everybody can read it who
    reaches the store's port. Without it they need a file each, `UNISONO_SECRET_FILE`. Ranks on one host need neither.
    """

    def __init__(self, *, secret_in_store: bool = False) -> None:
        self.secret_in_store = secret_in_store


def create(group: Any, options: Any) -> Any:
    """Makes the backend of a group; torch calls it with its description of the group and `pg_options`."""
    module = _library.load()
    ranks = list(group.global_ranks_in_group)
    if ranks and module.has_world():
        return module.group(ranks, group.group_rank, group.timeout)
    in_store = isinstance(options, Options) and options.secret_in_store
    store = _own_part(group)
    with _secret.file(store, group.group_rank, group.group_size, group.timeout, in_store) as secret:
        return module.join(
            store, group.group_rank, group.group_size, group.timeout, secret, is_default=not ranks
        )


def _own_part(group: Any) -> Store:
    """The part of a group's store that no earlier meeting has written to.

    A store keeps the keys of earlier groups of the name, and torchrun's keeps its keys when ranks start again.
    """
    from torch.distributed import PrefixStore

    ranks = ",".join(map(str, group.global_ranks_in_group)) or f"all {group.group_size}"
    meeting = (*_place(group.store), group.group_id, ranks)
    number = _meetings[meeting]
    _meetings[meeting] += 1
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return PrefixStore(f"unisono/{attempt}/{ranks}/{number}/", group.store)


def _place(store: Store) -> tuple[object, ...]:
    """Where the values of a store are, as far as it says so."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return tuple(getattr(store, name, None) for name in ("host", "port", "path"))


def backend_of(group: Any | None) -> Any:
    """The backend of a group, which is one of this package; None is the default group.

    Raises TypeError where tensors of the CPU have another backend.
    """
    import torch
    import torch.distributed as dist

    found = (group or dist.group.WORLD)._get_backend(torch.device("cpu"))
    # TORCH_DISTRIBUTED_DEBUG=DETAIL puts a wrapper around a backend.
    found = getattr(found, "wrapped_pg", found)
    if not isinstance(found, _library.load().Backend):
        raise TypeError(
            f"unisono_torch: the group has the backend {found.name()!r} for the CPU; "
            'init_process_group("unisono") or new_group(backend="unisono") make a group of this one'
        )
    return found
