"""The end that a node brings about itself, because it cannot do its part any more."""

import asyncio
from typing import NoReturn

from millstream.observability.logs import get_logger

log = get_logger("millstream.node")


class NodeEnd:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.failure: asyncio.Future[NoReturn] = loop.create_future()

    def fail(self, reason: str) -> None:
        """End the process: others can take over only when they know that this node is gone."""
        if not self.failure.done():
            log.error("the node ends", reason=reason)
            self.failure.set_exception(RuntimeError(reason))
            # Whoever waits for the end looks at whether there is a failure, not at what it is.
            self.failure.exception()
