"""The function by which torch makes a group: the default one meets through torch's store, others are made of it."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Any

from . import _library, _secret

if TYPE_CHECKING:
    from torch.distributed import Store

NAME = "unisono"

# The meetings of this process. Every rank has as many: a store keeps the keys of earlier ones.
_meetings = itertools.count()


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
    store = _own_part(group.store)
    with _secret.file(store, group.group_rank, group.group_size, group.timeout, in_store) as secret:
        return module.join(
            store, group.group_rank, group.group_size, group.timeout, secret, is_default=not ranks
        )


def _own_part(store: Store) -> Store:
    """The part of a store that no earlier meeting has written to: torchrun's keeps its keys when ranks start again."""
    from torch.distributed import PrefixStore

    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return PrefixStore(f"unisono/{attempt}/{next(_meetings)}/", store)
