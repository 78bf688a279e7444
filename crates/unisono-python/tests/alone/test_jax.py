"""Real arrays of jax, where it is installed; tests/ranks/test_more.py has a test double of them, and of tensors."""

from __future__ import annotations

import numpy as np
import pytest

import unisono as un

jax = pytest.importorskip("jax", reason="jax is not installed: its wheels have 300 MB")


def test_arrays_of_jax_are_inputs(unisono_world):
    own = jax.numpy.arange(4.0)
    for result in (unisono_world.all_reduce(own), unisono_world.all_reduce_async(own).wait()):
        assert type(result).__module__ == "numpy" and (result == own).all() and result.dtype == own.dtype
    assert unisono_world.all_gather(own).shape == (1, 4) and unisono_world.all_to_all(own).tolist() == own.tolist()
    assert unisono_world.prepare_all_reduce(own).call(own).tolist() == own.tolist()
    for call in (unisono_world.broadcast, lambda array: unisono_world.recv(array, None)):
        with pytest.raises(un.InvalidArgument, match="is read-only"):
            call(own)


def test_elements_that_numpy_lacks(unisono_world):
    own = jax.numpy.ones(3, jax.numpy.bfloat16)
    with pytest.raises(un.InvalidArgument, match="numpy has no arrays of bf16"):
        unisono_world.all_reduce(own)
    out = np.zeros(3, "uint16")
    unisono_world.all_reduce(own, out=out, dtype="bf16")
    assert (out.view(jax.numpy.bfloat16) == 1).all()
