"""The secret of a job whose ranks meet through torch's store, which everybody can read.

Rank 0 writes a fresh one to a file that only its user can read, and the file's name to the store. A rank that sees no
such file is on another host, and says what it needs.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed import Store

_KEY = "secret"
_BYTES = 32

# In place of a file's name: the settings of each rank name its file, or the store carries the secret.
_OF_SETTINGS, _IN_STORE = b"settings", b"store"

# The value may be of a meeting that has failed: rank 0 of this one has so long to replace it.
_STALE_S = 10.0
_PAUSE_S = 0.05


@contextlib.contextmanager
def file(
    store: Store, rank: int, size: int, timeout: datetime.timedelta, in_store: bool
) -> Iterator[str]:
    """The name of the secret's file for the time of the meeting; empty where the library finds a secret itself."""
    if size == 1:
        yield ""
    elif rank > 0:
        yield _find(store, rank, timeout)
    elif _is_set() or in_store:
        store.set(_KEY, _OF_SETTINGS if _is_set() else _IN_STORE)
        yield ""
    else:
        folder = tempfile.mkdtemp(prefix="unisono-")
        try:
            path = Path(folder, "secret")
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as written:
                # Held as long as this process lives: a file without a holder is of a meeting that has failed.
                fcntl.flock(written, fcntl.LOCK_EX)
                written.write(os.urandom(_BYTES))
                written.flush()
                store.set(_KEY, str(path))
                yield str(path)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _find(store: Store, rank: int, timeout: datetime.timedelta) -> str:
    store.wait([_KEY], timeout)
    deadline = time.monotonic() + min(_STALE_S, timeout.total_seconds())
    while time.monotonic() < deadline:
        value = store.get(_KEY)
        if value in (_OF_SETTINGS, _IN_STORE):
            return ""
        path = value.decode()
        if _is_held(path):
            return path
        time.sleep(_PAUSE_S)
    raise RuntimeError(
        f"unisono: rank {rank} does not see {path}, the file of rank 0's secret: rank 0 has ended, or is on another "
        "host. Ranks on several hosts need UNISONO_SECRET_FILE, which names a file with the same 32 random bytes on "
        "every host, mode 0600; or pg_options=unisono_torch.Options(secret_in_store=True) on every rank, where "
        "everybody who reaches torch's store may join the job"
    )


def _is_held(path: str) -> bool:
    """Whether a process that meets holds the lock of this file."""
    try:
        with open(path, "rb") as found:
            fcntl.flock(found, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def _is_set() -> bool:
    """Whether the settings of this process name a secret."""
    names = ("UNISONO_SECRET_FILE", "UNISONO_SECRET_GROUP_FILE", "UNISONO_SECRET_FD")
    # A user without a name, as in some containers, has no home.
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return any(name in os.environ for name in names) or Path(home, "unisono/secret").exists()
