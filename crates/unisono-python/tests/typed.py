"""Uses of the package that mypy checks; no program runs it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from typing_extensions import assert_type

import unisono as un
from unisono import MPI

Floats = npt.NDArray[np.float64]


def calls(world: un.World, array: Floats, out: Floats) -> None:
    assert_type(world.all_reduce(array, un.SUM), Floats)
    assert_type(world.all_reduce([1, 2], un.SUM, out=out), Floats)
    assert_type(world.all_reduce_async(array).wait(), Floats)
    assert_type(world.recv(out, un.ANY, un.ANY), un.Received)
    assert_type(world.recv_async(out, None).wait(1.0), un.Received)
    assert_type(world.split(None), un.Communicator | None)
    assert_type(world.barrier_async().wait(), None)
    assert_type(world.store().get("key"), bytes)
    assert_type(world.shrink().new_ranks, list[int | None])
    with un.init() as again:
        assert_type(again, un.World)
    world.all_reduce(array, 3)  # type: ignore[call-overload]
    world.send(array, "0")  # type: ignore[arg-type]


def forms(world: un.World, array: Floats, out: Floats) -> None:
    prepared = world.prepare_all_reduce(array, un.AVG)
    assert_type(prepared, un.Prepared)
    with world.group_calls() as group:
        assert_type(group.broadcast(array), Floats)
        group.compressed_all_reduce(array)  # type: ignore[attr-defined]
    assert_type(group.received, list[un.Received])
    assert_type(world.all_gather_coalesced([array], [out]), list[Floats])
    assert_type(world.coalesced_share(10, 0), tuple[int, int])
    state = un.CompressionState.reduce_scatter(world, "int8", [10])
    assert_type(world.compressed_reduce_scatter_async(array, out, un.SUM, state).wait(), Floats)
    assert_type(world.log_stragglers(json=True), str)


async def awaited(world: un.World, array: Floats) -> None:
    assert_type(await world.all_reduce_async(array), Floats)


def errors(error: un.PeerLost) -> None:
    assert_type(error.ranks, list[int])
    assert_type(error.kind, str)


def of_mpi4py() -> None:
    comm: MPI.Comm = MPI.COMM_WORLD
    assert_type(comm.Get_rank(), int)
    assert_type(comm.Isend(b"abc", 0), MPI.Request)
