"""A connection that several hold up goes on when the last of them lets go."""

import asyncio
from typing import cast

from millstream.broker.server.intake import Intake


class Transport:
    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def test_requests_wait_for_all_who_block() -> None:
    handled: list[bytes] = []
    intake = Intake(
        lambda request: handled.append(bytes(request)), lambda: 0.0, cast(asyncio.AbstractEventLoop, None)
    )
    intake.begin(cast(asyncio.Transport, Transport()))
    # A handler that waits, and too much of the client's that is under way.
    intake.block()
    intake.block()
    intake.handle(memoryview(b"request"))
    intake.unblock()
    assert handled == []
    intake.unblock()
    assert handled == [b"request"]
