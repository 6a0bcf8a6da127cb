import asyncio
from typing import Any

from millstream.broker.server.server import EndedConnections


def test_what_one_client_does_again_and_again_is_counted(told: list[tuple[str, dict[str, Any]]]) -> None:
    loop = asyncio.new_event_loop()
    ended = EndedConnections(loop)
    for size in range(250):
        ended.refused(f"10.0.0.1:{size}", f"a request of {size} bytes")
    ended.refused("10.0.0.2:1", "a request of 5 bytes")
    ended.rejected("10.0.0.1:1", "100 connections are open")
    assert len(told) == 100 + 2

    ended.sum_up()
    assert len(told) == 103
    event, fields = told[-1]
    assert event == "connection closed, many times"
    assert (fields["host"], fields["reason"], fields["more"]) == ("10.0.0.1", "a request of N bytes", 150)

    ended.refused("10.0.0.1:1", "a request of 5 bytes")
    ended.sum_up()
    assert told[-1][0] == "connection closed"
    loop.close()
