"""Timing and bounds of the core; time is counted in ticks."""

import msgspec

TICK_MS = 25


class RaftSettings(msgspec.Struct, frozen=True):
    """The defaults are for ticks of 25 ms: a heartbeat every 50 ms, an election after 300 to 600 ms of silence."""

    heartbeat_ticks: int = 2
    election_ticks: int = 12
    """A voter that heard its leader within this time refuses to vote; a timeout is drawn from once to twice it."""
    snapshot_retry_ticks: int = 400
    """A snapshot whose arrival was not reported is sent again after this time."""
    write_retry_ticks: int = 40
    """A write that a full disk refused is tried again after this time."""
    max_append_bytes: int = 1 << 20
    max_inflight_bytes: int = 8 << 20
    """Sent to one follower and not acknowledged."""
    max_inflight_messages: int = 128
    max_uncommitted_bytes: int = 16 << 20
    """Proposed and not committed; one proposal is always let in."""
    max_apply_bytes: int = 1 << 16
    """Handed out for applying in one Ready, and on a node in one turn of its loop."""
    trailing_entries: int = 1000
    """Kept in memory behind a snapshot, for followers that are only a little behind."""
