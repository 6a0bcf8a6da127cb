"""The quorum's pace in a simulation: slower than usual, and counted in fewer and longer ticks."""

from millstream.cluster.raft.settings import RaftSettings

TICK_MS = 300
"""A tick wakes a node up and mostly finds nothing to do."""

RAFT = RaftSettings(heartbeat_ticks=2, election_ticks=4, snapshot_retry_ticks=30, write_retry_ticks=5)
"""An election after 1.2 to 2.4 seconds of silence."""
