"""Collective communication between the ranks of a job.

    >>> import numpy as np
    >>> import unisono as un
    >>> world = un.init()
    >>> world.all_reduce(np.full(4, float(world.rank)), un.SUM)
    array([0., 0., 0., 0.])

Start it with `unisono run -n 4 -- python train.py`, or with mpirun, torchrun or srun; alone it is a world of one. The
examples of the classes go on from here, in a world of one.
"""

from __future__ import annotations

import atexit as _atexit
import sysconfig as _sysconfig

if _sysconfig.get_config_var("Py_GIL_DISABLED"):
    raise ImportError("unisono does not support free-threaded builds of Python (Py_GIL_DISABLED) yet")

from ._errors import (
    Aborted,
    AlgorithmRefused,
    Cancelled,
    Closed,
    ConcurrentUse,
    Configuration,
    Corrupted,
    Error,
    Evicted,
    Forked,
    InvalidArgument,
    LibraryMissing,
    Mismatch,
    NonFinite,
    NoQuorum,
    Panicked,
    PeerLost,
    Refused,
    Rendezvous,
    Revoked,
    StoreFull,
    StoreTimeout,
    System,
    Timeout,
    Truncated,
    Unsupported,
    Vendor,
)
from ._run import RunFailed, run
from ._unisono import (
    ANY,
    AVG,
    BIT_AND,
    BIT_OR,
    BIT_XOR,
    MAX,
    MIN,
    PROD,
    SUM,
    Cartesian,
    Communicator,
    CompressionState,
    DeviceMesh,
    GroupCalls,
    Message,
    Op,
    Prepared,
    Received,
    Shrunk,
    Store,
    Work,
    World,
    __version__,
    _enter,
    _exit,
    init,
    is_initialized,
    wait_all,
    wait_any,
)

__all__ = [
    "ANY",
    "AVG",
    "BIT_AND",
    "BIT_OR",
    "BIT_XOR",
    "MAX",
    "MIN",
    "PROD",
    "SUM",
    "Aborted",
    "AlgorithmRefused",
    "Cancelled",
    "Cartesian",
    "Closed",
    "Communicator",
    "CompressionState",
    "ConcurrentUse",
    "Configuration",
    "Corrupted",
    "DeviceMesh",
    "Error",
    "Evicted",
    "Forked",
    "GroupCalls",
    "InvalidArgument",
    "LibraryMissing",
    "Message",
    "Mismatch",
    "NoQuorum",
    "NonFinite",
    "Op",
    "Panicked",
    "PeerLost",
    "Prepared",
    "Received",
    "Refused",
    "Rendezvous",
    "Revoked",
    "RunFailed",
    "Shrunk",
    "Store",
    "StoreFull",
    "StoreTimeout",
    "System",
    "Timeout",
    "Truncated",
    "Unsupported",
    "Vendor",
    "Work",
    "World",
    "__version__",
    "init",
    "is_initialized",
    "run",
    "wait_all",
    "wait_any",
]

_enter()
# Before finalization begins: threads of the library must not wait for an interpreter that goes away.
_atexit.register(_exit)
