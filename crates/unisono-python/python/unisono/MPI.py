"""The names of mpi4py that its tutorial needs: `from unisono import MPI`.

Upper-case methods move arrays, and take `array`, `[array, MPI.DOUBLE]`, `[array, count, MPI.DOUBLE]` and, in the forms
whose counts differ by rank, `[array, counts, displacements, MPI.DOUBLE]`. Lower-case methods move objects by pickle. What
is not here raises AttributeError with its name.

    from unisono import MPI

    comm = MPI.COMM_WORLD
    print(comm.Get_rank(), comm.Get_size())
"""

from __future__ import annotations

import functools
import operator
import pickle
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import unisono as _un

from ._mpi_buffers import (
    BYTE,
    CHAR,
    COMPLEX,
    DATATYPES,
    DOUBLE,
    DOUBLE_COMPLEX,
    FLOAT,
    IN_PLACE,
    INT,
    LONG,
    Buffer,
    Datatype,
    buffer,
)
from ._mpi_requests import ANY_SOURCE, ANY_TAG, PROC_NULL, UNDEFINED, Request, Status, peer, tag_of

__all__ = [
    "ANY_SOURCE",
    "ANY_TAG",
    "BAND",
    "BOR",
    "BXOR",
    "BYTE",
    "CHAR",
    "COMPLEX",
    "DOUBLE",
    "DOUBLE_COMPLEX",
    "FLOAT",
    "INT",
    "IN_PLACE",
    "LONG",
    "MAX",
    "MIN",
    "PROC_NULL",
    "PROD",
    "SUM",
    "UNDEFINED",
    "Comm",
    "Datatype",
    "Exception",
    "Finalize",
    "Get_processor_name",
    "Is_finalized",
    "Is_initialized",
    "Op",
    "Request",
    "Status",
    "Wtime",
]

Exception = _un.Error  # noqa: A001 - mpi4py's name


class Op:
    """A reduce operator, for arrays and for objects."""

    def __init__(self, name: str, on_arrays: _un.Op, on_objects: Callable[[Any, Any], Any]) -> None:
        self.name = name
        self.on_arrays = on_arrays
        self.on_objects = on_objects

    def __call__(self, left: Any, right: Any) -> Any:
        return self.on_objects(left, right)

    def __repr__(self) -> str:
        return f"MPI.{self.name}"

    @classmethod
    def Create(cls, function: Callable[[Any, Any], Any], commute: bool = False) -> Op:
        """An operator of the program, for objects and for numpy arrays: it returns the result."""
        return cls(function.__name__, _un.Op.user(function, commutative=commute), function)


SUM = Op("SUM", _un.SUM, operator.add)
PROD = Op("PROD", _un.PROD, operator.mul)
MIN = Op("MIN", _un.MIN, min)
MAX = Op("MAX", _un.MAX, max)
BAND = Op("BAND", _un.BIT_AND, operator.and_)
BOR = Op("BOR", _un.BIT_OR, operator.or_)
BXOR = Op("BXOR", _un.BIT_XOR, operator.xor)


class Comm:
    """A communicator with mpi4py's methods. `unisono` is the one beneath, with all of ours."""

    def __init__(self, communicator: _un.Communicator) -> None:
        self.unisono = communicator
        # Messages that a probe has found, until a receive takes them.
        self._probed: list[_un.Message] = []

    def _found(self, source: int, tag: int) -> _un.Message | None:
        """The oldest message of the probes that fits."""
        for message in self._probed:
            if source in (ANY_SOURCE, message.source) and tag in (ANY_TAG, message.tag):
                return message
        return None

    def _receive(self, out: Buffer, source: int, tag: int) -> _un.Received:
        message = self._found(source, tag)
        if message is None:
            return self.unisono.recv(out.array, peer(source), tag_of(tag), dtype=out.dtype)
        self._probed.remove(message)
        message.recv(out.array, dtype=out.dtype)
        return message.received()

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"unisono.MPI.Comm has no {name}; docs/python.md lists the names of mpi4py that are there")

    def __repr__(self) -> str:
        return f"MPI.Comm({self.unisono!r})"

    @property
    def rank(self) -> int:
        return self.unisono.rank

    @property
    def size(self) -> int:
        return self.unisono.size

    def Get_rank(self) -> int:
        return self.unisono.rank

    def Get_size(self) -> int:
        return self.unisono.size

    def Split(self, color: int = 0, key: int = 0) -> Comm | None:
        """The ranks of one colour, in the order of their keys; `None` for MPI.UNDEFINED."""
        group = self.unisono.split(None if color == UNDEFINED else color, key)
        return None if group is None else Comm(group)

    def Dup(self) -> Comm:
        return Comm(self.unisono.duplicate())

    def Free(self) -> None:
        self.unisono.close()

    def Abort(self, errorcode: int = 1) -> NoReturn:
        """Ends every call of the job with `Aborted`, and this process with the code."""
        self.unisono.abort()
        raise SystemExit(errorcode)

    # Arrays, all ranks.

    def Barrier(self) -> None:
        self.unisono.barrier()

    def Bcast(self, buf: Any, root: int = 0) -> None:
        own = buffer(buf)
        self.unisono.broadcast(own.array, root, dtype=own.dtype)

    def Reduce(self, sendbuf: Any, recvbuf: Any, op: Op = SUM, root: int = 0) -> None:
        if self.rank != root:
            own = buffer(sendbuf)
            self.unisono.reduce(own.array, op.on_arrays, root, dtype=own.dtype)
            return
        own, out = _pair(sendbuf, recvbuf)
        self.unisono.reduce(own.array, op.on_arrays, root, out=out.array, dtype=own.dtype)

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        own, out = _pair(sendbuf, recvbuf)
        self.unisono.all_reduce(own.array, op.on_arrays, out=out.array, dtype=own.dtype)

    def Scan(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        own, out = _pair(sendbuf, recvbuf)
        self.unisono.scan(own.array, op.on_arrays, out=out.array, dtype=own.dtype)

    def Exscan(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        own, out = _pair(sendbuf, recvbuf)
        self.unisono.exscan(own.array, op.on_arrays, out=out.array, dtype=own.dtype)

    def Reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        own, out = buffer(sendbuf), buffer(recvbuf)
        self.unisono.reduce_scatter(own.array, op.on_arrays, out=out.array, dtype=own.dtype)

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        own, out = _pair(sendbuf, recvbuf)
        self.unisono.all_gather(own.array, out=out.array, dtype=own.dtype)

    def Allgatherv(self, sendbuf: Any, recvbuf: Any) -> None:
        out = buffer(recvbuf)
        parts = out.parts(self.size)
        own = Buffer(parts[self.rank].copy(), out.dtype) if sendbuf is IN_PLACE else buffer(sendbuf)
        self.unisono.all_gather(own.array, out=parts, counts=_lengths(parts), dtype=own.dtype)

    def Gather(self, sendbuf: Any, recvbuf: Any = None, root: int = 0) -> None:
        if self.rank != root:
            own = buffer(sendbuf)
            self.unisono.gather(own.array, root, dtype=own.dtype)
            return
        own, out = _pair(sendbuf, recvbuf)
        self.unisono.gather(own.array, root, out=out.array, dtype=own.dtype)

    def Gatherv(self, sendbuf: Any, recvbuf: Any = None, root: int = 0) -> None:
        """As in MPI only the root gives the counts, so it tells them to the others first."""
        if self.rank != root:
            own = buffer(sendbuf)
            counts = self.unisono.broadcast_object(None, root)
            self.unisono.gather(own.array, root, counts=counts, dtype=own.dtype)
            return
        out = buffer(recvbuf)
        parts = out.parts(self.size)
        own = Buffer(parts[root].copy(), out.dtype) if sendbuf is IN_PLACE else buffer(sendbuf)
        counts = self.unisono.broadcast_object(_lengths(parts), root)
        self.unisono.gather(own.array, root, out=parts, counts=counts, dtype=own.dtype)

    def Scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        if self.rank != root:
            out = buffer(recvbuf)
            self.unisono.scatter(None, out.array, root, dtype=out.dtype)
            return
        own = buffer(sendbuf)
        out = own if recvbuf is IN_PLACE else buffer(recvbuf)
        self.unisono.scatter(own.array, out.array, root, dtype=own.dtype)

    def Scatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """As in MPI only the root gives the counts, so it tells them to the others first."""
        if self.rank != root:
            out = buffer(recvbuf)
            counts = self.unisono.broadcast_object(None, root)
            self.unisono.scatter(None, out.array, root, counts=counts, dtype=out.dtype)
            return
        own = buffer(sendbuf)
        parts = own.parts(self.size)
        counts = self.unisono.broadcast_object(_lengths(parts), root)
        out = Buffer(parts[root].copy(), own.dtype) if recvbuf is IN_PLACE else buffer(recvbuf)
        self.unisono.scatter(parts, out.array, root, counts=counts, dtype=own.dtype)

    def Alltoall(self, sendbuf: Any, recvbuf: Any) -> None:
        own, out = _pair(sendbuf, recvbuf)
        self.unisono.all_to_all(own.array, out=out.array, dtype=own.dtype)

    def Alltoallv(self, sendbuf: Any, recvbuf: Any) -> None:
        own, out = buffer(sendbuf), buffer(recvbuf)
        self.unisono.all_to_all(own.parts(self.size), out=out.parts(self.size), dtype=own.dtype)

    # Arrays, two ranks.

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        own = buffer(buf)
        self.unisono.send(own.array, peer(dest), tag, dtype=own.dtype)

    Ssend = Send

    def Recv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> None:
        Status._tell(status, self._receive(buffer(buf), source, tag))

    def Sendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> None:
        own, out = buffer(sendbuf), buffer(recvbuf)
        sent = self.unisono.send_async(own.array, peer(dest), sendtag, dtype=own.dtype)
        received = self._receive(out, source, recvtag)
        sent.wait()
        Status._tell(status, received)

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        own = buffer(buf)
        return Request(self.unisono.send_async(own.array, peer(dest), tag, dtype=own.dtype))

    def Irecv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        out = buffer(buf)
        if self._found(source, tag) is not None:
            return Request(None, self._receive(out, source, tag))
        return Request(self.unisono.recv_async(out.array, peer(source), tag_of(tag), dtype=out.dtype))

    def Iallreduce(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> Request:
        own, out = _pair(sendbuf, recvbuf)
        return Request(self.unisono.all_reduce_async(own.array, op.on_arrays, out=out.array, dtype=own.dtype))

    def Ibcast(self, buf: Any, root: int = 0) -> Request:
        own = buffer(buf)
        return Request(self.unisono.broadcast_async(own.array, root, dtype=own.dtype))

    def Ibarrier(self) -> Request:
        return Request(self.unisono.barrier_async())

    def Probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> bool:
        """Waits for a message, and leaves it to the next receive that fits."""
        message = self._found(source, tag)
        if message is None:
            message = self.unisono.probe(peer(source), tag_of(tag))
            self._probed.append(message)
        Status._tell(status, message.received())
        return True

    def Iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> bool:
        """Whether there is a message; it is left to the next receive that fits."""
        message = self._found(source, tag)
        if message is None:
            message = self.unisono.try_probe(peer(source), tag_of(tag))
            if message is None:
                return False
            self._probed.append(message)
        Status._tell(status, message.received())
        return True

    # Objects.

    def barrier(self) -> None:
        self.unisono.barrier()

    def bcast(self, obj: Any = None, root: int = 0) -> Any:
        return self.unisono.broadcast_object(obj, root)

    def scatter(self, sendobj: Sequence[Any] | None = None, root: int = 0) -> Any:
        return self.unisono.scatter_object(sendobj, root)

    def gather(self, sendobj: Any, root: int = 0) -> list[Any] | None:
        return self.unisono.gather_object(sendobj, root)

    def allgather(self, sendobj: Any) -> list[Any]:
        return self.unisono.all_gather_object(sendobj)

    def alltoall(self, sendobj: Sequence[Any]) -> list[Any]:
        if len(sendobj) != self.size:
            raise _un.InvalidArgument(f"{len(sendobj)} objects for {self.size} ranks", usable=True)
        sent = [pickle.dumps(obj, pickle.HIGHEST_PROTOCOL) for obj in sendobj]
        lengths = self.unisono.all_gather_object([len(one) for one in sent])
        received = [bytearray(of_rank[self.rank]) for of_rank in lengths]
        self.unisono.all_to_all(sent, out=received)
        return [pickle.loads(one) for one in received]

    def reduce(self, sendobj: Any, op: Op | Callable[[Any, Any], Any] = SUM, root: int = 0) -> Any:
        """The reduction of the ranks' objects in rank order on the root, `None` elsewhere."""
        objects = self.unisono.gather_object(sendobj, root)
        return None if objects is None else functools.reduce(op, objects)

    def allreduce(self, sendobj: Any, op: Op | Callable[[Any, Any], Any] = SUM) -> Any:
        return functools.reduce(op, self.unisono.all_gather_object(sendobj))

    def send(self, obj: Any, dest: int, tag: int = 0) -> None:
        self.unisono.send_object(obj, peer(dest), tag)

    ssend = send

    def recv(
        self, buf: Any = None, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None
    ) -> Any:
        if source == PROC_NULL:
            Status._tell(status, self.unisono.recv(bytearray(), None))
            return None
        obj, received = self._receive_object(source, tag)
        Status._tell(status, received)
        return obj

    def _receive_object(self, source: int, tag: int) -> tuple[Any, _un.Received]:
        message = self._found(source, tag)
        if message is None:
            return self.unisono.recv_object(peer(source), tag_of(tag))
        self._probed.remove(message)
        return pickle.loads(message.recv(bytearray(message.nbytes))), message.received()

    def sendrecv(
        self,
        sendobj: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> Any:
        sent = self.isend(sendobj, dest, sendtag)
        obj = self.recv(recvbuf, source, recvtag, status)
        sent.wait()
        return obj

    def isend(self, obj: Any, dest: int, tag: int = 0) -> Request:
        message = pickle.dumps(obj, pickle.HIGHEST_PROTOCOL)
        return Request(self.unisono.send_async(message, peer(dest), tag))

    def irecv(self, buf: Any = None, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        """A receive of an object, which takes its message when it is tested or waited for."""
        return Request._of_object(
            lambda: self.Iprobe(source, tag), lambda: self._receive_object(source, tag)
        )


def _pair(sendbuf: Any, recvbuf: Any) -> tuple[Buffer, Buffer]:
    """Both buffers of a call: the same one for IN_PLACE."""
    out = buffer(recvbuf)
    return (out, out) if sendbuf is IN_PLACE else (buffer(sendbuf), out)


def _lengths(parts: Sequence[Any]) -> list[int]:
    return [len(part) for part in parts]


def Is_initialized() -> bool:
    """Whether this process has joined its job, as COMM_WORLD does when it is first asked for."""
    return _un.is_initialized()


def Is_finalized() -> bool:
    return _finalized


def Finalize() -> None:
    """Leaves the job. The exit of the process does it too."""
    global _finalized
    if not _finalized and _world is not None:
        _world.unisono.close()
    _finalized = True


def Get_processor_name() -> str:
    return socket.gethostname()


def Wtime() -> float:
    """Seconds of a clock that never goes back."""
    return time.monotonic()


_world: Comm | None = None
_self: Comm | None = None
_finalized = False


def __getattr__(name: str) -> Any:
    global _world, _self
    if name == "COMM_WORLD":
        if _world is None:
            _world = Comm(_un.init(adopt=True))
        return _world
    if name == "COMM_SELF":
        if _self is None:
            world = __getattr__("COMM_WORLD")
            _self = Comm(world.unisono.make_group("MPI.COMM_SELF of " + str(world.rank), [world.rank]))
        return _self
    if name in DATATYPES:
        return DATATYPES[name]
    raise AttributeError(f"unisono.MPI has no {name}; docs/python.md lists the names of mpi4py that are there")
