"""Other forms of calls: prepared, several as one, coalesced, compressed in pieces and in the background."""

from __future__ import annotations

import numpy as np
import pytest

import unisono as un

SUM = sum


def parts(comm, elements: int) -> list[slice]:
    """The share of each rank in an array of the coalesced calls."""
    return [slice(*comm.coalesced_share(elements, rank)) for rank in range(comm.size)]


def test_prepared_reductions(comm):
    own = np.full(5, comm.rank + 1.0)
    total = SUM(range(1, comm.size + 1))
    in_place = comm.prepare_all_reduce(own)
    assert in_place.call(own) is own and (own == total).all()
    other = np.full(5, 2.0)
    assert in_place.start(other).wait() is other and (other == 2 * comm.size).all()
    # Another rank need not prepare its call.
    if comm.rank == 0:
        comm.all_reduce(other)
    else:
        in_place.call(other)
    assert (other == 2 * comm.size**2).all() and "all_reduce" in repr(in_place)
    result = np.zeros(5)
    separate = comm.prepare_all_reduce(own, un.MAX, out=result)
    assert separate.call(own, result) is result and (result == total).all()
    reduced = comm.prepare_reduce(own, un.SUM, comm.size - 1).call(np.ones(5))
    assert reduced is None if comm.rank < comm.size - 1 else (reduced == comm.size).all()
    longest = un.Op.user(np.maximum, name="longest")
    prepared = comm.prepare_all_reduce(own, longest)
    assert (prepared.call(np.full(5, float(comm.rank))) == comm.size - 1).all()


def test_prepared_moves(comm):
    rows = comm.prepare_all_gather(np.zeros(2, "int32")).call(np.full(2, comm.rank, "int32"))
    assert (rows == np.arange(comm.size)[:, None]).all()
    assert (comm.prepare_broadcast(np.zeros(3), 0).call(np.full(3, float(comm.rank))) == 0).all()
    gathered = comm.prepare_gather(np.zeros(1)).call(np.full(1, float(comm.rank)))
    assert gathered is None if comm.rank else (gathered[:, 0] == np.arange(comm.size)).all()
    whole = np.arange(2.0 * comm.size) if comm.rank == 0 else None
    scatter = comm.prepare_scatter(whole, np.zeros(2))
    assert scatter.call(whole, np.zeros(2)).tolist() == [2.0 * comm.rank, 2.0 * comm.rank + 1]
    share = comm.prepare_reduce_scatter(np.zeros(comm.size)).call(np.arange(float(comm.size)))
    assert share.tolist() == [comm.rank * comm.size]
    swapped = comm.prepare_all_to_all(np.zeros(comm.size)).call(np.full(comm.size, float(comm.rank)))
    assert swapped.tolist() == list(range(comm.size))


def test_prepared_calls_that_do_not_fit(comm):
    prepared = comm.prepare_all_reduce(np.zeros(3))
    with pytest.raises(un.InvalidArgument, match="4 x f64.*3 x f64.* was prepared"):
        prepared.call(np.zeros(4))
    with pytest.raises(un.InvalidArgument, match="was prepared"):
        prepared.call(np.zeros(3), np.zeros(3))
    with pytest.raises(TypeError, match="array: missing in all_reduce"):
        prepared.call()
    with pytest.raises(TypeError, match="out: missing in scatter"):
        comm.prepare_scatter(np.zeros(comm.size), np.zeros(1)).call(np.zeros(comm.size))
    with pytest.raises(un.InvalidArgument, match="ranks 0 to"):
        comm.prepare_broadcast(np.zeros(1), comm.size)


def test_calls_as_one(comm):
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    first, second, own, seen = np.ones(3), np.full(2, comm.rank), np.full(4, comm.rank), np.zeros(4, "int64")
    with comm.group_calls() as group:
        assert group.all_reduce(first) is first
        rows = group.all_gather(second)
        # Messages begin together: a receive may come before the send that it waits for.
        assert group.recv(seen, left) is None
        group.send(own, right)
        group.barrier()
        assert group.received == []
    assert (first == comm.size).all() and (rows[:, 0] == np.arange(comm.size)).all() and (seen == left).all()
    assert [(one.source, one.count) for one in group.received] == [(left, 4)]
    with pytest.raises(un.InvalidArgument, match="its block has ended"):
        group.barrier()
    with comm.group_calls():
        pass


def test_calls_as_one_that_are_refused(comm):
    own = np.ones(4)
    with pytest.raises(un.InvalidArgument, match="shares memory"):
        with comm.group_calls() as group:
            group.all_reduce(own)
            group.broadcast(own[1:2])
    with pytest.raises(ZeroDivisionError):
        with comm.group_calls() as group:
            group.all_reduce(own)
            1 / 0
    assert (own == 1).all()
    # Two calls may read one array.
    with comm.group_calls() as group:
        group.all_gather(own)
        group.all_reduce(own, out=np.zeros(4))
    comm.barrier()


@pytest.mark.parametrize("lengths", [(8, 12), (5, 1, 7), (0, 3)])
def test_coalesced_calls(comm, lengths):
    whole = [np.arange(length, dtype="float32") + 100 * at for at, length in enumerate(lengths)]
    own = [array[parts(comm, len(array))[comm.rank]].copy() for array in whole]
    out = [np.zeros_like(array) for array in whole]
    assert comm.all_gather_coalesced(own, out) is out
    assert all((one == other).all() for one, other in zip(out, whole, strict=True))
    again = [np.zeros_like(array) for array in whole]
    assert comm.all_gather_coalesced_async(own, again).wait() is again
    assert all((one == other).all() for one, other in zip(again, whole, strict=True))

    shares = [np.zeros_like(array) for array in own]
    assert comm.reduce_scatter_coalesced(whole, shares) is shares
    assert all((share == comm.size * array).all() for share, array in zip(shares, own, strict=True))
    means = [np.zeros_like(array) for array in own]
    comm.reduce_scatter_coalesced_async(whole, means, un.AVG).wait()
    assert all((mean == array).all() for mean, array in zip(means, own, strict=True))


def test_coalesced_calls_that_are_refused(comm):
    with pytest.raises(un.InvalidArgument, match="takes lists of arrays"):
        comm.all_gather_coalesced(np.zeros(1), [np.zeros(comm.size)])
    with pytest.raises(un.InvalidArgument, match="1 arrays, but out has 2"):
        comm.all_gather_coalesced([np.zeros(1)], [np.zeros(comm.size), np.zeros(comm.size)])
    with pytest.raises(un.InvalidArgument, match=f"array 0 has 2 elements, but the share of rank {comm.rank}"):
        comm.reduce_scatter_coalesced([np.zeros(comm.size)], [np.zeros(2)])


def test_compressed_pieces(comm, rng):
    whole = [rng.standard_normal(length).astype("float32") for length in (30, 17)]
    own = [array[parts(comm, len(array))[comm.rank]].copy() for array in whole]
    state = un.CompressionState.reduce_scatter(comm, "int8", [30, 17])
    shares = [np.zeros_like(array) for array in own]
    assert comm.compressed_reduce_scatter(whole, shares, un.AVG, state) is shares
    assert all(np.abs(share - array).max(initial=0) < 0.05 for share, array in zip(shares, own, strict=True))

    counts = [3 + rank for rank in range(comm.size)]
    state = un.CompressionState.all_gather(comm, "int8", counts)
    out = np.zeros(SUM(counts), "float32")
    assert comm.compressed_all_gather(np.full(counts[comm.rank], comm.rank, "float32"), out, state) is out
    assert np.abs(out - np.repeat(np.arange(comm.size), counts)).max() < 0.05


def test_a_compressed_list_and_started_calls(comm):
    state = un.CompressionState(comm, "int8", 6)
    arrays = [np.full(4, 0.5, "float32"), np.full(2, -0.25, "float32")]
    assert comm.compressed_all_reduce(arrays, un.AVG, state) is arrays
    assert np.abs(arrays[0] - 0.5).max() < 0.01 and np.abs(arrays[1] + 0.25).max() < 0.01
    own = np.full(6, float(comm.rank), "float32")
    work = comm.compressed_all_reduce_async(own, un.SUM, state)
    assert work.wait(60) is own and work.done() and state.calls == 2
    assert np.abs(own - SUM(range(comm.size))).max() < 0.2
    told = []
    work.on_done(lambda: told.append(1))
    assert told == [1]


def test_errors_of_compressed_calls_name_this_file(comm):
    state = un.CompressionState(comm, "int8", 8)
    for call in (comm.compressed_all_reduce, lambda *all: comm.compressed_all_reduce_async(*all).wait()):
        with pytest.raises(un.InvalidArgument) as caught:
            call(np.ones(9, "float32"), un.SUM, state)
        assert "test_forms.py" in str(caught.value) and ".rs" not in str(caught.value), str(caught.value)
    with pytest.raises(un.InvalidArgument, match="is for|all_gather"):
        comm.compressed_all_gather(np.ones(8, "float32"), np.ones(8 * comm.size, "float32"), state)


def test_stragglers(comm, _unisono_job):
    _unisono_job.start_log()
    try:
        for _ in range(3):
            comm.barrier()
        text = _unisono_job.log_stragglers(comm)
        report = _unisono_job.log_stragglers(comm, json=True)
    finally:
        _unisono_job.stop_log()
    assert "rank" in text and "verdict" in report
    assert len(set(comm.all_gather_object(report))) == 1
