"""The exceptions of unisono: a class for each kind of error, as docs/errors.md lists them."""

from __future__ import annotations


class Error(Exception):
    """Any failure of a communicator.

    `kind` is the name of its class. `ranks` are the ranks of the job that it names: lost, awaited, different, or the
    one that ended the communicator. `call` is the call in which it was noticed, with file and line, or `None`. `usable`
    says whether the communicator is as usable as before the call; else it is revoked on every rank.
    """

    ranks: list[int]
    call: str | None
    usable: bool

    def __init__(
        self, text: str, *, ranks: list[int] | None = None, call: str | None = None, usable: bool = False
    ) -> None:
        super().__init__(text)
        self.ranks = [] if ranks is None else ranks
        self.call = call
        self.usable = usable

    @property
    def kind(self) -> str:
        """The name of its kind."""
        return type(self).__name__

    def __reduce__(self) -> tuple[object, ...]:
        return (_unpickled, (type(self), self.args[0], self.ranks, self.call, self.usable))


def _unpickled(kind: type[Error], text: str, ranks: list[int], call: str | None, usable: bool) -> Error:
    return kind(text, ranks=ranks, call=call, usable=usable)


class Mismatch(Error):
    """Ranks made different calls."""


class PeerLost(Error, ConnectionError):
    """Ranks died or went silent."""


class Timeout(Error, TimeoutError):
    """The deadline of a call passed."""


class Cancelled(Error):
    """A rank cancelled its work."""


class Panicked(Error):
    """A function of the program failed within a call."""


class Closed(Error):
    """The communicator was closed."""


class Refused(Error):
    """A connection was refused in the handshake."""


class System(Error, OSError):
    """The operating system refused something."""


class Evicted(Error):
    """The other ranks took this one for dead."""


class Corrupted(Error):
    """Bytes were changed on their way."""


class Revoked(Error):
    """A rank revoked the communicator; `__cause__` is its error."""


class InvalidArgument(Error, ValueError):
    """An argument is not valid; nothing was sent."""


class Unsupported(Error, NotImplementedError):
    """The backend cannot do this call; nothing was sent."""


class ConcurrentUse(Error):
    """Two threads issued calls on one communicator at once."""


class NoQuorum(Error):
    """Too many silent ranks may go on without this one."""


class Truncated(Error):
    """A receive was too small for its message, which is gone."""


class Rendezvous(Error):
    """Not all ranks of the job arrived."""


class Configuration(Error):
    """A setting that cannot be used."""


class Forked(Error):
    """A communicator of the parent process was used in a forked child."""


class Aborted(Error):
    """A rank aborted the communicator."""


class AlgorithmRefused(Error):
    """An algorithm from outside is wrong, differs between ranks, or does not fit."""


class NonFinite(Error, ArithmeticError):
    """A buffer of a compressed call has a NaN, an infinity or too large a number."""


class LibraryMissing(Error):
    """A vendor's library is not there."""


class Vendor(Error):
    """A function of a vendor's library failed."""


class StoreTimeout(Error, TimeoutError):
    """The deadline of a call of the store passed."""


class StoreFull(Error):
    """The store has no room."""


CLASSES: dict[str, type[Error]] = {
    kind.__name__: kind
    for kind in (
        Mismatch,
        PeerLost,
        Timeout,
        Cancelled,
        Panicked,
        Closed,
        Refused,
        System,
        Evicted,
        Corrupted,
        Revoked,
        InvalidArgument,
        Unsupported,
        ConcurrentUse,
        NoQuorum,
        Truncated,
        Rendezvous,
        Configuration,
        Forked,
        Aborted,
        AlgorithmRefused,
        NonFinite,
        LibraryMissing,
        Vendor,
        StoreTimeout,
        StoreFull,
    )
}

for _kind in (Error, *CLASSES.values()):
    _kind.__module__ = "unisono"
