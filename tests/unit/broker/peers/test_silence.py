from typing import Any

from millstream.broker.peers.silence import Silence


def test_a_silence_is_told_when_it_begins_once_a_minute_and_when_it_ends(
    told: list[tuple[str, dict[str, Any]]],
) -> None:
    now = 100.0
    silence = Silence(lambda: now)
    silence.ended()
    for _ in range(250):
        silence.lasts("the controller does not answer")
        now += 0.5
    silence.ended()
    silence.ended()
    silence.lasts("there is no controller")

    assert [(event, fields["seconds"]) for event, fields in told] == [
        ("no heartbeat", 0.0),
        ("no heartbeat", 60.0),
        ("no heartbeat", 120.0),
        ("heartbeat again", 125.0),
        ("no heartbeat", 0.0),
    ]
