"""Peers, tags, statuses and requests with mpi4py's names."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import unisono as _un

from ._mpi_buffers import BYTE, Datatype

ANY_SOURCE = -1
ANY_TAG = -1
PROC_NULL = -2
UNDEFINED = -32766


def peer(rank: int) -> Any:
    """The peer of a rank of mpi4py."""
    if rank == ANY_SOURCE:
        return _un.ANY
    return None if rank == PROC_NULL else rank


def tag_of(tag: int) -> Any:
    """The tag of a receive."""
    return _un.ANY if tag == ANY_TAG else tag


class Status:
    """The source, the tag and the length of a message."""

    def __init__(self) -> None:
        self._source = ANY_SOURCE
        self._tag = ANY_TAG
        self._nbytes = 0

    @staticmethod
    def _tell(status: Status | None, received: _un.Received) -> None:
        if status is not None:
            status._source = PROC_NULL if received.source is None else received.source
            status._tag = received.tag
            status._nbytes = received.nbytes

    def Get_source(self) -> int:
        return self._source

    def Get_tag(self) -> int:
        return self._tag

    def Get_count(self, datatype: Datatype = BYTE) -> int:
        """The number of elements of this type: of bytes without one."""
        return self._nbytes // datatype.size

    Get_elements = Get_count

    @property
    def source(self) -> int:
        return self._source

    @property
    def tag(self) -> int:
        return self._tag

    @property
    def count(self) -> int:
        return self._nbytes


class Request:
    """The handle of a call that goes on; after its end it is inactive, as mpi4py's REQUEST_NULL."""

    def __init__(self, work: _un.Work[Any] | None, received: _un.Received | None = None) -> None:
        self._work = work
        # Of a receive that has ended already.
        self._received = received
        # Whether its object has come, and the receive of it: both for a receive of an object.
        self._expected: tuple[Callable[[], bool], Callable[[], tuple[Any, _un.Received]]] | None = None
        self._object: Any = None

    @classmethod
    def _of_object(cls, has_come: Callable[[], bool], receive: Callable[[], tuple[Any, _un.Received]]) -> Request:
        """A receive of an object, which is received when the request is waited for or tested."""
        request = cls(None)
        request._expected = (has_come, receive)
        return request

    def __bool__(self) -> bool:
        """Whether it is active."""
        return self._work is not None or self._received is not None or self._expected is not None

    def _is_ended(self) -> bool:
        if self._expected is not None:
            return self._expected[0]()
        return self._work is None or self._work.done()

    def Wait(self, status: Status | None = None) -> bool:
        """Blocks until the call has ended. True, as in mpi4py."""
        if self._expected is not None:
            receive, self._expected = self._expected[1], None
            self._object, received = receive()
            Status._tell(status, received)
        elif self._received is not None:
            Status._tell(status, self._received)
            self._received = None
        elif self._work is not None:
            work, self._work = self._work, None
            result = work.wait()
            if isinstance(result, _un.Received):
                Status._tell(status, result)
        return True

    def Test(self, status: Status | None = None) -> bool:
        """Whether the call has ended."""
        return self._is_ended() and self.Wait(status)

    def wait(self, status: Status | None = None) -> Any:
        """Blocks until the call has ended: the object of a receive, else `None`."""
        self.Wait(status)
        return self._object

    def test(self, status: Status | None = None) -> tuple[bool, Any]:
        """Whether the call has ended, and the object of a receive."""
        ended = self.Test(status)
        return ended, self._object

    def Cancel(self) -> None:
        """Revokes the communicator unless the call has ended."""
        if self._work is not None:
            self._work.cancel()

    @classmethod
    def Waitall(cls, requests: Sequence[Request], statuses: Sequence[Status] | None = None) -> bool:
        """Waits for all."""
        for index, request in enumerate(requests):
            request.Wait(statuses[index] if statuses is not None and index < len(statuses) else None)
        return True

    @classmethod
    def waitall(cls, requests: Sequence[Request], statuses: Sequence[Status] | None = None) -> list[Any]:
        """Waits for all, and gives the objects of receives."""
        cls.Waitall(requests, statuses)
        return [request._object for request in requests]

    @classmethod
    def Waitany(cls, requests: Sequence[Request], status: Status | None = None) -> int:
        """Waits for one that is active, and gives its index; UNDEFINED if none is."""
        active = [index for index, request in enumerate(requests) if request]
        works = [requests[index]._work for index in active]
        started = [work for work in works if work is not None]
        if not active:
            return UNDEFINED
        if len(started) == len(active):
            ended = _un.wait_any(started)
            index = active[0 if ended is None else ended]
            requests[index].Wait(status)
            return index
        while True:
            for index in active:
                if requests[index].Test(status):
                    return index
            time.sleep(0.0001)

    @classmethod
    def waitany(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, Any]:
        """Waits for one that is active: its index, and the object of a receive."""
        index = cls.Waitany(requests, status)
        return index, None if index == UNDEFINED else requests[index]._object

    @classmethod
    def Testall(cls, requests: Sequence[Request], statuses: Sequence[Status] | None = None) -> bool:
        """Whether all have ended."""
        return all(request._is_ended() for request in requests) and cls.Waitall(requests, statuses)
