"""The context of one event's decision: state, records, replies and effects."""

import enum
from collections.abc import Callable
from typing import NamedTuple

from millstream.coordinator.decision import Decision, Reply
from millstream.coordinator.groups.records import GroupRecord, Key, Value
from millstream.coordinator.groups.replies import GroupReply
from millstream.coordinator.groups.settings import GroupSettings
from millstream.coordinator.groups.state import GroupState
from millstream.coordinator.groups.target_job import TargetJob
from millstream.protocol.errors import ErrorCode, KafkaError


class TimerKind(enum.Enum):
    SESSION = "session"
    # The rounds of a classic group: first round, waiting for JoinGroup, waiting for SyncGroup.
    INITIAL_DELAY = "initial delay"
    JOIN = "join"
    SYNC = "sync"
    # A member of a KIP-848 group must give partitions back; its classic members must join or sync in time.
    REVOKE = "revoke"
    MEMBER_JOIN = "member join"
    MEMBER_SYNC = "member sync"
    # New targets of a group are taken in parts.
    TARGETS = "targets"
    SHARE_SESSION = "share session"
    # Offsets of a deleted group, and of deleted topics, are removed in parts.
    DELETE = "delete"
    ORPHANS = "orphans"
    EXPIRE_OFFSETS = "expire offsets"


class Timer(NamedTuple):
    kind: TimerKind
    group_id: str = ""
    member_id: str = ""


class Turn:
    """Passed to every rule. `write` replays at once, so later rules of the same turn see the change."""

    __slots__ = ("_effects", "_new_id", "_records", "_replies", "now_ms", "settings", "state")

    def __init__(
        self, state: GroupState, settings: GroupSettings, now_ms: int, new_id: Callable[[], str]
    ) -> None:
        self.state = state
        self.settings = settings
        self.now_ms = now_ms
        self._new_id = new_id
        self._records: list[GroupRecord] = []
        self._replies: list[Reply[GroupReply]] = []
        self._effects: list[TargetJob] = []

    def write(self, key: Key, value: Value | None) -> None:
        record = GroupRecord(key, value)
        self._records.append(record)
        self.state.replay(record)

    def reply(self, token: int, answer: GroupReply) -> None:
        self._replies.append(Reply(token, answer))

    def refuse(self, token: int, code: ErrorCode, message: str = "") -> None:
        self._replies.append(Reply(token, KafkaError(code, message)))

    def start(self, job: TargetJob) -> None:
        """Its result comes as `TargetsComputed`."""
        self._effects.append(job)

    def group_config(self, group_id: str, name: str) -> int:
        """A setting of one group in milliseconds: its own, or the broker's."""
        own = self.state.topics.group_configs.get(group_id, {}).get(name)
        default: int = getattr(self.settings, f"group_{name.replace('.', '_')}")
        return default if own is None else int(own)

    def new_member_id(self, prefix: str) -> str:
        return f"{prefix}-{self._new_id()}" if prefix else self._new_id()

    def schedule(self, timer: Timer, delay_ms: int) -> None:
        self.state.deadlines.set(timer, self.now_ms + delay_ms)

    def cancel(self, timer: Timer) -> None:
        self.state.deadlines.cancel(timer)

    def decision(self, *, atomic: bool = True) -> Decision[GroupRecord, GroupReply, TargetJob]:
        return Decision(self._records, self._replies, atomic, self._effects)
