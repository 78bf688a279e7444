"""One rank of `compare.py`: the times of whole calls on numpy arrays. Rank 0 prints them as a line of JSON.

Arguments: the system, and the seconds that each measurement takes about.
"""

import json
import sys
import time

import numpy as np

SIZES = {"8 B": 8, "64 B": 64, "1 KiB": 1 << 10, "64 KiB": 64 << 10}
SIZES |= {"1 MiB": 1 << 20, "16 MiB": 16 << 20, "64 MiB": 64 << 20}
# Measurements of a cell in one run, of which the median counts.
REPEATS = 5


class System:
    """What a library calls each of the calls, which take an input and an output."""

    def __init__(self, name):
        if name == "unisono":
            import unisono as un

            comm = un.init()
            self.rank, self.size = comm.rank, comm.size
            self.barrier, self.send, self.receive = comm.barrier, comm.send, comm.recv
            self.maximum = lambda source, out: comm.all_reduce(source, un.MAX, out=out)
            self.calls = {
                "all_reduce": lambda source, out: comm.all_reduce(source, un.SUM, out=out),
                "broadcast": lambda source, out: comm.broadcast(out, 0),
                "all_gather": lambda source, out: comm.all_gather(source, out=out),
                "all_to_all": lambda source, out: comm.all_to_all(source, out=out),
            }
        else:
            from mpi4py import MPI

            comm = MPI.COMM_WORLD
            self.rank, self.size = comm.Get_rank(), comm.Get_size()
            self.barrier, self.send, self.receive = comm.Barrier, comm.Send, comm.Recv
            self.maximum = lambda source, out: comm.Allreduce(source, out, MPI.MAX)
            self.calls = {
                "all_reduce": lambda source, out: comm.Allreduce(source, out, MPI.SUM),
                "broadcast": lambda source, out: comm.Bcast(out, 0),
                "all_gather": lambda source, out: comm.Allgather(source, out),
                "all_to_all": lambda source, out: comm.Alltoall(source, out),
            }

    def ping_pong(self, source, out):
        if self.rank == 0:
            self.send(source, 1)
            self.receive(out, 1)
        elif self.rank == 1:
            self.receive(out, 0)
            self.send(source, 0)


def cell(system, operation, size_bytes):
    """The input and the output of this rank, and the output after a right call. The size is that of the longer one."""
    rank, size = system.rank, system.size
    count = size_bytes // 4
    whole = operation in ("all_gather", "all_to_all")
    count -= count % size if whole else 0
    if count == 0:
        return None
    source = np.full(count // size if operation == "all_gather" else count, rank + 1, "f4")
    out = np.zeros(count, "f4")
    if operation == "all_reduce":
        expected = np.full(count, size * (size + 1) / 2, "f4")
    elif whole:
        expected = np.repeat(np.arange(1, size + 1, dtype="f4"), count // size)
    elif operation == "broadcast":
        expected = np.full(count, 7, "f4")
        out[:] = 7 if rank == 0 else 0
    else:
        expected = np.full(count, 2 - rank if rank < 2 else 0, "f4")
    return source, out, expected


def measure(system, call, source, out, expected, seconds):
    """Microseconds of a call, on the slowest rank."""

    def run(count):
        system.barrier()
        start = time.perf_counter()
        for _ in range(count):
            call(source, out)
        slowest = np.zeros(1)
        system.maximum(np.array([(time.perf_counter() - start) / count]), slowest)
        return slowest[0]

    call(source, out)
    assert (out == expected).all(), "a wrong result"
    count = max(2, min(10_000, int(seconds / REPEATS / max(run(3), 1e-7))))
    times = sorted(run(count) for _ in range(REPEATS))
    assert (out == expected).all(), "a wrong result"
    return times[REPEATS // 2] * 1e6


def main():
    system, seconds = System(sys.argv[1]), float(sys.argv[2])
    ping_pong = system.ping_pong
    times = {}
    for operation, call in {**system.calls, "send and receive": ping_pong}.items():
        for size, size_bytes in SIZES.items():
            arrays = cell(system, operation, size_bytes)
            if arrays is not None:
                microseconds = measure(system, call, *arrays, seconds)
                ways = 2 if call == ping_pong else 1
                times[f"{operation}, {size}"] = microseconds / ways
    if system.rank == 0:
        print("TIMES " + json.dumps(times), flush=True)


main()
