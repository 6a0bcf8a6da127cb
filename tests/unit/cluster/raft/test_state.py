"""Times that together let a failover end within a second."""

from millstream.cluster.raft.state import TICK_MS, RaftSettings
from millstream.config.settings import Settings


def test_silence_is_noticed_in_time() -> None:
    settings, cluster = RaftSettings(), Settings().cluster
    assert cluster.tick == TICK_MS
    assert settings.heartbeat_ticks * TICK_MS == 50
    assert settings.election_ticks * TICK_MS == 300, "and up to twice that"
    assert cluster.session_timeout == 1500, (
        "ended processes are noticed at once, and others may wait for a processor"
    )
    assert cluster.heartbeat_interval <= cluster.session_timeout / 3, "more than one sign of life may be lost"
