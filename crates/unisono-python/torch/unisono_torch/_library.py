"""The extension module `unisono_torch._C`: prebuilt for a version of torch, or built from its sources once."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib.util
import os
import sysconfig
from pathlib import Path
from types import ModuleType

from . import _build

_FOLDER = Path(__file__).parent

# The longest wait, at the end of the interpreter, for functions that run after futures.
_FUTURES_S = 5.0

_module: ModuleType | None = None


def load() -> ModuleType:
    """The module.

    Raises ImportError where no shim fits this version of torch and none can be built.
    """
    global _module
    if _module is None:
        import torch
        import unisono

        # The library itself is in unisono's module: both packages share its worlds.
        ctypes.CDLL(unisono._unisono.__file__, mode=os.RTLD_GLOBAL | os.RTLD_NOW)
        module = _opened(_shim())
        # torch's managers of contexts call from there.
        skipped = [contextlib.__file__, *(f"{path}/" for path in (*torch.__path__, _FOLDER))]
        module.skip_folders(skipped)
        atexit.register(module.end_futures, _FUTURES_S)
        _module = module
    return _module


def shim_name() -> str:
    """The name of the shim for this torch and this Python."""
    import torch

    major, minor = torch.__version__.split(".")[:2]
    return f"torch-{major}.{minor}.{sysconfig.get_config_var('SOABI')}.so"


def _shim() -> Path:
    prebuilt = _FOLDER / "shims" / shim_name()
    return prebuilt if prebuilt.exists() else _build.cached(shim_name())


def _opened(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("unisono_torch._C", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"unisono_torch: {path} is no extension module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
