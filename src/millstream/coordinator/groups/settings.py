"""Settings of groups; most fields are Kafka's settings of that name.

Defaults are Kafka's, except for the number of members of a group, which Kafka does not limit, and our own limits.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace


class MigrationPolicy(enum.Enum):
    """`group.consumer.migration.policy`: which way a group with members may change its protocol."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def upgrades(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def downgrades(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    group_initial_rebalance_delay_ms: int = 3_000
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 10_000
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_size: int = 10_000
    group_share_max_size: int = 200
    group_share_session_timeout_ms: int = 45_000
    group_share_heartbeat_interval_ms: int = 5_000
    group_share_assignment_interval_ms: int = 1_000
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    group_max_count: int = 50_000
    group_max_bytes: int = 256 * 1024 * 1024
    group_member_max_bytes: int = 1024 * 1024
    group_consumer_regex_max_length: int = 1_000
    group_consumer_regex_max_count: int = 100
    offsets_max_count: int = 2_000_000
    offsets_max_bytes: int = 256 * 1024 * 1024
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 7 * 24 * 60
    offsets_retention_check_interval_ms: int = 600_000
    offsets_topic_num_partitions: int = 50
    # A commit is one atomic batch. Kafka limits it by the internal topic's max.message.bytes.
    offset_commit_max_bytes: int = 1_048_576
    # How long a member may stay away between its first JoinGroup and the end of that round; fixed in Kafka.
    new_member_join_timeout_ms: int = 300_000

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000


def group_settings(configs: Mapping[str, str]) -> GroupSettings:
    """Translate Kafka's names to our fields; unset ones keep their defaults."""
    changes: dict[str, object] = {}
    for each in fields(GroupSettings):
        text = configs.get(each.name.replace("_", "."))
        if text is None:
            continue
        if isinstance(each.default, MigrationPolicy):
            changes[each.name] = MigrationPolicy(text.lower())
        elif isinstance(each.default, tuple):
            changes[each.name] = tuple(name.strip() for name in text.split(",") if name.strip())
        else:
            changes[each.name] = int(text)
    return replace(GroupSettings(), **changes)  # type: ignore[arg-type]
