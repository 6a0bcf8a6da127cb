"""The end of a follower's requests on one connection."""

import asyncio
import gc
from types import SimpleNamespace
from typing import Any

from millstream.broker.replicas.conversation import Conversation


def test_a_follower_that_stops_as_its_connection_is_lost_leaves_no_error_behind() -> None:
    """Nobody asked how the conversation ended, and the loop reported an exception that was never retrieved."""
    reported: list[Any] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: reported.append(context))
        link: Any = SimpleNamespace()
        conversation = Conversation(loop, link, 10.0)

        async def follow() -> None:
            try:
                await asyncio.wait([conversation.ended])
            finally:
                conversation.close()

        task = loop.create_task(follow())
        await asyncio.sleep(0)
        conversation.end(ConnectionError("the connection was lost"))
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(scenario())
    gc.collect()
    assert reported == []
