"""Meshes, grids, compressed calls, and arrays that come by DLPack."""

from __future__ import annotations

import numpy as np
import pytest

import unisono as un


class Tensor:
    """An array that shows itself by DLPack only, as torch's tensors do."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OldTensor(Tensor):
    """An exporter that is older than versions of DLPack."""

    def __dlpack__(self):
        return self.array.__dlpack__()


@pytest.mark.parametrize("kind", [Tensor, OldTensor])
@pytest.mark.parametrize("dtype", ["int8", "uint64", "float16", "float32", "float64", "complex64", "bool"])
def test_tensors(comm, kind, dtype):
    own = kind(np.ones((2, 3), dtype))
    op = un.MAX if dtype in ("bool", "int8") else un.SUM
    assert comm.all_reduce(own, op) is own
    assert (own.array == (1 if op is un.MAX else comm.size)).all()
    gathered = comm.all_gather(kind(np.full((2, 3), comm.rank % 2, dtype)))
    assert gathered.shape == (comm.size, 2, 3) and gathered.dtype == dtype
    assert (gathered[:, 0, 0] == np.arange(comm.size) % 2).all()


def test_tensors_that_no_call_takes(comm):
    with pytest.raises(un.InvalidArgument, match="do not follow each other"):
        comm.all_reduce(Tensor(np.ones((4, 4)).T))
    read_only = np.ones(3)
    read_only.flags.writeable = False
    with pytest.raises(un.InvalidArgument, match="is read-only"):
        comm.all_reduce(Tensor(read_only))
    assert comm.all_gather(Tensor(read_only)).shape == (comm.size, 3)
    with pytest.raises(un.InvalidArgument, match="its memory is not exported"):
        comm.all_reduce(Tensor(np.ones(3, dtype=">f8")))
    empty = Tensor(np.ones((0, 3)))
    assert comm.all_reduce(empty) is empty


class ArrayThatNeverChanges(Tensor):
    """As arrays of jax, which promise it and have no flag for it."""


ArrayThatNeverChanges.__module__ = "jaxlib._jax"


def test_arrays_that_never_change_give_new_results(comm):
    own = ArrayThatNeverChanges(np.full(3, 2.0))
    result = comm.all_reduce(own)
    assert (result == 2 * comm.size).all() and (own.array == 2).all()
    with pytest.raises(un.InvalidArgument, match="is read-only"):
        comm.broadcast(own)


def test_a_tensor_lives_until_its_call_has_ended(comm):
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    work = comm.send_async(Tensor(np.full(100_000, comm.rank)), right)
    out = np.zeros(100_000, "int64")
    comm.recv(out, left)
    work.wait()
    assert (out == left).all()


def test_a_mesh(_unisono_job):
    world = _unisono_job
    columns = 2 if world.size % 2 == 0 else 1
    mesh = un.DeviceMesh(world, {"data": world.size // columns, "model": columns})
    assert mesh.names == ["data", "model"] and mesh.shape == [world.size // columns, columns]
    assert mesh.size == world.size and mesh.ranks == list(range(world.size))
    assert mesh.coordinate == [world.rank // columns, world.rank % columns]
    group = mesh.group("model")
    assert group.all_gather_object(world.rank) == [world.rank // columns * columns + at for at in range(columns)]
    assert mesh.submesh(["data"]).shape == [world.size // columns]
    flat = mesh.flatten(["data", "model"], "all")
    assert flat.group("all").size == world.size
    with pytest.raises(un.InvalidArgument, match="is no dimension of"):
        mesh.group("pipeline")
    with pytest.raises(un.InvalidArgument):
        un.DeviceMesh(world, {"data": world.size + 1})


def test_a_grid(comm):
    grid = un.Cartesian(comm, [comm.size, 1], [True, False])
    assert grid.dims == [comm.size, 1] and grid.periodic == [True, False] and grid.coordinate == [comm.rank, 0]
    assert grid.shift(0) == ((comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size)
    assert grid.shift(1) == (None, None) and grid.rank_at([-1, 0]) == comm.size - 1 and grid.rank_at([0, 5]) is None
    assert grid.coordinate_of(0) == [0, 0] and grid.communicator.size == comm.size
    assert grid.sub_grid([True, False]).dims == [comm.size]
    assert un.Cartesian.dims_create(12, [0, 0]) == [4, 3]
    with pytest.raises(un.InvalidArgument, match="the product of"):
        un.Cartesian(comm, [comm.size + 1], [False])


@pytest.mark.parametrize("codec, error_max", [("sign", 0.25), ("int8", 0.02), ("int4", 0.4), ("bf16", 0.01)])
def test_compressed_means_come_near(comm, rng, codec, error_max):
    """With `sign` only over many calls, since each call brings what the last one lost."""
    gradients = rng.standard_normal((comm.size, 4096)).astype("float32")
    expected, calls = gradients.mean(axis=0), 40
    state = un.CompressionState(comm, codec, 4096)
    total = np.zeros(4096)
    for _ in range(calls):
        own = gradients[comm.rank].copy()
        assert comm.compressed_all_reduce(own, un.AVG, state) is own
        total += own
    assert state.calls == calls and state.elements == 4096 and (codec != "sign" or state.nbytes > 0)
    assert np.abs(total / calls - expected).mean() < error_max * np.abs(expected).mean()


def test_a_state_is_kept_in_a_checkpoint(comm):
    state = un.CompressionState(comm, "sign", 100, dtype="float32", or_exact=False)
    comm.compressed_all_reduce(np.linspace(-1, 1, 100, dtype="float32"), un.SUM, state)
    again = un.CompressionState.restore(comm, "sign", state.export())
    one, other = np.ones(100, "float32"), np.ones(100, "float32")
    comm.compressed_all_reduce(one, un.SUM, state)
    comm.compressed_all_reduce(other, un.SUM, again)
    assert one.tobytes() == other.tobytes() and again.calls == 2
    again.reset()


def test_compressed_calls_that_are_refused(comm):
    state = un.CompressionState(comm, "int8", 8)
    with pytest.raises(un.InvalidArgument, match="compressed calls take f32, f16 and bf16"):
        comm.compressed_all_reduce(np.ones(8), un.SUM, state)
    with pytest.raises(un.Error):
        comm.compressed_all_reduce(np.ones(9, "float32"), un.SUM, state)
    with pytest.raises(un.NonFinite) as caught:
        comm.compressed_all_reduce(np.full(8, np.nan, "float32"), un.SUM, state)
    assert caught.value.usable and isinstance(caught.value, ArithmeticError)
    with pytest.raises(un.InvalidArgument, match='did you mean "int8"'):
        un.CompressionState(comm, "int9", 8)
    half = np.full(8, 0.5, "float16")
    comm.compressed_all_reduce(half, un.SUM, un.CompressionState(comm, "bf16", 8, dtype="f16"))
    assert (half == 0.5 * comm.size).all()
