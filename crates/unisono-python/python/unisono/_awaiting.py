"""`await work` in asyncio."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import Work


async def ended(work: Work[Any]) -> Any:
    """Gives the result of a started call at its end. A cancelled task leaves the call as it is."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def set_result() -> None:
        if not future.done():
            future.set_result(None)

    def wake() -> None:
        # The loop may have been closed meanwhile.
        if not loop.is_closed():
            loop.call_soon_threadsafe(set_result)

    work.on_done(wake)
    await future
    return work.wait()
