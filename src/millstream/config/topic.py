"""The resolved configuration of one topic, as the log and the broker use it."""

import msgspec

MAX_LONG = 2**63 - 1
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS


class TopicConfig(msgspec.Struct, frozen=True):
    """Kafka's topic settings by their names with underscores; their defaults are written down here only.

    `flush_messages` and `flush_ms` are as they take effect, see `durable`: a topic that only sets `flush.ms`
    has no limit on unflushed messages.
    """

    cleanup_policy: frozenset[str] = frozenset({"delete"})
    client_routing: str = "direct"
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    delete_retention_ms: int = _DAY_MS
    errors_deadletterqueue_group_enable: bool = False
    file_delete_delay_ms: int = 60_000
    flush_messages: int = 1
    flush_ms: int = MAX_LONG
    follower_replication_throttled_replicas: frozenset[str] = frozenset()
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: frozenset[str] = frozenset()
    max_compaction_lag_ms: int = MAX_LONG
    max_message_bytes: int = 1088 << 10
    """Kafka's limit for a whole batch is 1 MiB and 12 bytes, too small for a payload of 1 MiB."""
    message_timestamp_after_max_ms: int = _HOUR_MS
    message_timestamp_before_max_ms: int = MAX_LONG
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    placement: str = "balanced"
    preallocate: bool = False
    queue_delete_settled: bool = False
    queue_groups: frozenset[str] = frozenset()
    queue_headers_enable: bool = False
    queue_max_depth: int = -1
    queue_order: str = "none"
    queue_overflow: str = "refuse"
    queue_ttl_ms: int = -1
    replication_mode: str = "isr"
    retention_bytes: int = -1
    retention_ms: int = 7 * _DAY_MS
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * _DAY_MS
    unclean_leader_election_enable: bool = False

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def replicates_in_sync(self) -> bool:
        """Whether acks=all waits for other replicas."""
        return self.replication_mode != "async"

    def needed_in_sync(self, replicas: int) -> int:
        """The fewest in-sync replicas for a commit: `min.insync.replicas`, or all replicas in mode sync."""
        return replicas if self.replication_mode == "sync" else min(self.min_insync_replicas, replicas)

    @property
    def durable(self) -> bool:
        """Whether an acknowledgement waits for fsync.

        True unless `flush.messages` or `flush.ms` was set, on the topic or the broker, to allow unflushed messages;
        then the log is flushed after that many messages or milliseconds, and acknowledgements do not wait for it.
        """
        return self.flush_messages == 1
