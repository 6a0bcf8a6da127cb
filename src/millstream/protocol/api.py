"""The APIs that this broker serves: key, name, versions, and the first version with the flexible encoding.

The handler's module and kio's schema package have the API's name. Produce is advertised from version 0, as Kafka 4
does (librdkafka 2.0 drops gzip, snappy and lz4 otherwise), and served from 3.

Below: the features that ApiVersions reports from version 3 on, by Kafka's names, with the levels of Kafka 4.3 that are
served. A feature has one fixed level here. Unsupported features have none: transactions (`transaction.version`) and
streams groups (`streams.version`).
"""

from typing import NamedTuple

from millstream.protocol.wire import I16, I64, array_length, string, uvarint


class Api(NamedTuple):
    key: int
    name: str
    min_version: int
    max_version: int
    flexible_from: int

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_from


NEVER_FLEXIBLE = 32767
PRODUCE, FETCH, METADATA, FIND_COORDINATOR, API_VERSIONS, SHARE_ACKNOWLEDGE = 0, 1, 3, 10, 18, 79
PEER_HELLO, PEER_QUORUM, PEER_COMMAND, PEER_CLIENT, PEER_FOUNDING = 30000, 30001, 30002, 30003, 30004
NODE_CALL = 30005
LOG_CHECKSUM, LOG_FAULTS, QUEUE_CALL = 30010, 30011, 30020
PRODUCE_SERVED_FROM = 3

APIS: dict[int, Api] = {
    api.key: api
    for api in (
        Api(PRODUCE, "produce", 0, 13, 9),
        Api(FETCH, "fetch", 4, 18, 12),
        Api(2, "list_offsets", 1, 11, 6),
        Api(METADATA, "metadata", 0, 13, 9),
        Api(8, "offset_commit", 2, 10, 8),
        Api(9, "offset_fetch", 1, 10, 6),
        Api(FIND_COORDINATOR, "find_coordinator", 0, 6, 3),
        Api(11, "join_group", 0, 9, 6),
        Api(12, "heartbeat", 0, 4, 4),
        Api(13, "leave_group", 0, 5, 4),
        Api(14, "sync_group", 0, 5, 4),
        Api(15, "describe_groups", 0, 6, 5),
        Api(16, "list_groups", 0, 5, 3),
        Api(API_VERSIONS, "api_versions", 0, 4, 3),
        Api(19, "create_topics", 2, 7, 5),
        Api(20, "delete_topics", 1, 6, 4),
        Api(21, "delete_records", 0, 2, 2),
        Api(22, "init_producer_id", 0, 5, 2),
        Api(23, "offset_for_leader_epoch", 2, 4, 4),
        Api(29, "describe_acls", 1, 3, 2),
        Api(30, "create_acls", 1, 3, 2),
        Api(31, "delete_acls", 1, 3, 2),
        Api(32, "describe_configs", 1, 4, 4),
        Api(33, "alter_configs", 0, 2, 2),
        Api(34, "alter_replica_log_dirs", 1, 2, 2),
        Api(35, "describe_log_dirs", 1, 4, 2),
        Api(37, "create_partitions", 0, 3, 2),
        Api(38, "create_delegation_token", 1, 3, 2),
        Api(39, "renew_delegation_token", 1, 2, 2),
        Api(40, "expire_delegation_token", 1, 2, 2),
        Api(41, "describe_delegation_token", 1, 3, 2),
        Api(42, "delete_groups", 0, 2, 2),
        Api(43, "elect_leaders", 0, 2, 2),
        Api(44, "incremental_alter_configs", 0, 1, 1),
        Api(45, "alter_partition_reassignments", 0, 1, 0),
        Api(46, "list_partition_reassignments", 0, 0, 0),
        Api(47, "offset_delete", 0, 0, NEVER_FLEXIBLE),
        Api(48, "describe_client_quotas", 0, 1, 1),
        Api(49, "alter_client_quotas", 0, 1, 1),
        Api(50, "describe_user_scram_credentials", 0, 0, 0),
        Api(51, "alter_user_scram_credentials", 0, 0, 0),
        Api(55, "describe_quorum", 0, 2, 0),
        Api(57, "update_features", 0, 2, 0),
        Api(60, "describe_cluster", 0, 2, 0),
        Api(61, "describe_producers", 0, 0, 0),
        Api(64, "unregister_broker", 0, 0, 0),
        Api(65, "describe_transactions", 0, 0, 0),
        Api(66, "list_transactions", 0, 2, 0),
        Api(68, "consumer_group_heartbeat", 0, 1, 0),
        Api(69, "consumer_group_describe", 0, 1, 0),
        Api(74, "list_config_resources", 0, 1, 0),
        Api(75, "describe_topic_partitions", 0, 0, 0),
        Api(76, "share_group_heartbeat", 1, 1, 0),
        Api(77, "share_group_describe", 1, 1, 0),
        Api(78, "share_fetch", 1, 2, 0),
        Api(SHARE_ACKNOWLEDGE, "share_acknowledge", 1, 2, 0),
        Api(80, "add_raft_voter", 0, 1, 0),
        Api(81, "remove_raft_voter", 0, 0, 0),
        Api(83, "initialize_share_group_state", 0, 0, 0),
        Api(84, "read_share_group_state", 0, 0, 0),
        Api(85, "write_share_group_state", 0, 1, 0),
        Api(86, "delete_share_group_state", 0, 0, 0),
        Api(87, "read_share_group_state_summary", 0, 1, 0),
        Api(90, "describe_share_group_offsets", 0, 1, 0),
        Api(91, "alter_share_group_offsets", 0, 0, 0),
        Api(92, "delete_share_group_offsets", 0, 0, 0),
    )
}

# For other nodes and our own tools, on the same port; not Kafka's, and not reported to clients.
PEER_APIS: dict[int, Api] = {
    api.key: api
    for api in (
        Api(PEER_HELLO, "peer_hello", 0, 0, NEVER_FLEXIBLE),
        Api(PEER_QUORUM, "peer_quorum", 0, 0, NEVER_FLEXIBLE),
        Api(PEER_COMMAND, "peer_command", 0, 0, NEVER_FLEXIBLE),
        Api(PEER_CLIENT, "peer_client", 0, 0, NEVER_FLEXIBLE),
        Api(PEER_FOUNDING, "peer_founding", 0, 0, NEVER_FLEXIBLE),
        Api(NODE_CALL, "node_call", 0, 0, NEVER_FLEXIBLE),
        # For `millstream log verify` and `millstream backup`.
        Api(LOG_CHECKSUM, "log_checksum", 0, 0, NEVER_FLEXIBLE),
        # For `millstream cluster status`.
        Api(LOG_FAULTS, "log_faults", 0, 0, NEVER_FLEXIBLE),
    )
}

# For our own client, where Kafka's protocol has no request; served like Kafka's APIs, but not reported to clients.
OWN_APIS: dict[int, Api] = {QUEUE_CALL: Api(QUEUE_CALL, "queue_call", 0, 0, NEVER_FLEXIBLE)}


FEATURES = {
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "kraft.version": 1,
    # Which is 4.3-IV0.
    "metadata.version": 30,
    "share.version": 1,
}
# Raised with each change above: clients keep the features with the highest epoch.
FEATURES_EPOCH = 1

_SUPPORTED, _EPOCH, _FINALIZED = 0, 1, 2


def encode_features() -> bytes:
    """The tagged fields of the reply. Supported are lowest and highest level, finalized highest and lowest."""
    levels = b"".join(
        string(name, flexible=True) + I16.pack(level) * 2 + b"\0" for name, level in FEATURES.items()
    )
    features = array_length(len(FEATURES), flexible=True) + levels
    fields = ((_SUPPORTED, features), (_EPOCH, I64.pack(FEATURES_EPOCH)), (_FINALIZED, features))
    return uvarint(len(fields)) + b"".join(
        uvarint(tag) + uvarint(len(field)) + field for tag, field in fields
    )
