"""The limits of requests, by API.

Kafka accepts a million elements in any array. Here an element takes five to forty microseconds of the only event loop,
so each API accepts only as many as real clients need. A larger request is refused before the work is done, with
INVALID_REQUEST if the API's reply has an error code for the whole request, else by closing the connection.

- `size_bytes`: of the whole request. Only Produce may be as large as socket.request.max.bytes.
- `elements`: of all arrays and tagged fields of a request together, at every depth. Messages have no recursive types,
  so their depth is that of their schema, four arrays at most.
- `arrays`: of single arrays, by name, whose elements are expensive.
- `MAX_TAGS`: tagged fields in one place. Kafka's messages have up to four.
"""

from collections.abc import Mapping
from typing import NamedTuple

from millstream.protocol.errors import ErrorCode, KafkaError

MAX_TAGS = 32
# For everything but clients' requests: replies to our own tools, records of internal topics, other nodes.
UNLIMITED_ELEMENTS = 1_000_000
NO_ARRAYS: Mapping[str, int] = {}

_MB = 1 << 20
_WHATEVER_IS_TAKEN = 2**31 - 1


class TooManyElements(KafkaError):
    """A request exceeds its API's limit; it is well-formed as far as it was read."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)


class RequestLimit(NamedTuple):
    size_bytes: int
    elements: int
    arrays: Mapping[str, int] = NO_ARRAYS


_TOPICS = {"topics": 10_000, "topic_names": 10_000}
_RESOURCES = {"resources": 10_000, "configs": 1_000}
_SMALL = RequestLimit(_MB // 4, 1_000)
_OF_NODES = RequestLimit(_WHATEVER_IS_TAKEN, UNLIMITED_ELEMENTS)

LIMITS: dict[str, RequestLimit] = {
    # Topics and partitions: a client may use tens of thousands of partitions at once.
    "produce": RequestLimit(_WHATEVER_IS_TAKEN, 10_000),
    "fetch": RequestLimit(8 * _MB, 50_000),
    "list_offsets": RequestLimit(8 * _MB, 50_000),
    "offset_for_leader_epoch": RequestLimit(8 * _MB, 50_000),
    "offset_commit": RequestLimit(8 * _MB, 50_000),
    "offset_fetch": RequestLimit(8 * _MB, 50_000),
    "offset_delete": RequestLimit(2 * _MB, 20_000),
    "metadata": RequestLimit(8 * _MB, 50_000),
    "describe_topic_partitions": RequestLimit(2 * _MB, 10_000),
    "describe_log_dirs": RequestLimit(8 * _MB, 50_000),
    "delete_records": RequestLimit(8 * _MB, 50_000),
    "alter_replica_log_dirs": RequestLimit(8 * _MB, 50_000),
    "describe_producers": RequestLimit(2 * _MB, 10_000),
    # Changes of topics: with manual assignments each replica is an element.
    "create_topics": RequestLimit(16 * _MB, 100_000, _TOPICS),
    "create_partitions": RequestLimit(16 * _MB, 100_000, _TOPICS),
    "delete_topics": RequestLimit(4 * _MB, 10_000, _TOPICS),
    "alter_partition_reassignments": RequestLimit(8 * _MB, 50_000),
    "list_partition_reassignments": RequestLimit(8 * _MB, 50_000),
    "elect_leaders": RequestLimit(8 * _MB, 100_000),
    "describe_configs": RequestLimit(4 * _MB, 20_000, _RESOURCES),
    "alter_configs": RequestLimit(4 * _MB, 20_000, _RESOURCES),
    "incremental_alter_configs": RequestLimit(4 * _MB, 20_000, _RESOURCES),
    # Groups and their members.
    "find_coordinator": RequestLimit(2 * _MB, 10_000),
    "describe_groups": RequestLimit(2 * _MB, 10_000),
    "consumer_group_describe": RequestLimit(2 * _MB, 10_000),
    "delete_groups": RequestLimit(2 * _MB, 10_000),
    "list_groups": _SMALL,
    "join_group": RequestLimit(16 * _MB, 100),
    "sync_group": RequestLimit(64 * _MB, 20_000),
    "leave_group": RequestLimit(4 * _MB, 10_000),
    "heartbeat": _SMALL,
    "consumer_group_heartbeat": RequestLimit(8 * _MB, 100_000),
    # Queues: an element is a range of records, or the outcome of one record.
    "share_group_heartbeat": RequestLimit(2 * _MB, 10_000),
    "share_group_describe": RequestLimit(2 * _MB, 10_000),
    "share_fetch": RequestLimit(4 * _MB, 100_000),
    "share_acknowledge": RequestLimit(4 * _MB, 100_000),
    "describe_share_group_offsets": RequestLimit(2 * _MB, 10_000, {"groups": 1_000}),
    "alter_share_group_offsets": RequestLimit(2 * _MB, 10_000),
    "delete_share_group_offsets": RequestLimit(2 * _MB, 10_000),
    "initialize_share_group_state": RequestLimit(4 * _MB, 20_000),
    "read_share_group_state": RequestLimit(4 * _MB, 20_000),
    "write_share_group_state": RequestLimit(4 * _MB, 20_000),
    "delete_share_group_state": RequestLimit(4 * _MB, 20_000),
    "read_share_group_state_summary": RequestLimit(4 * _MB, 20_000),
    "queue_call": RequestLimit(2 * _MB, 1),
    # Access rules, users, tokens and quotas.
    "create_delegation_token": _SMALL,
    "renew_delegation_token": _SMALL,
    "expire_delegation_token": _SMALL,
    "describe_delegation_token": _SMALL,
    "describe_acls": _SMALL,
    "create_acls": RequestLimit(2 * _MB, 10_000),
    "delete_acls": RequestLimit(2 * _MB, 10_000),
    "describe_client_quotas": _SMALL,
    "alter_client_quotas": RequestLimit(2 * _MB, 10_000),
    "describe_user_scram_credentials": RequestLimit(2 * _MB, 10_000),
    "alter_user_scram_credentials": RequestLimit(2 * _MB, 10_000),
    # Transactions.
    "describe_transactions": RequestLimit(2 * _MB, 10_000),
    "list_transactions": _SMALL,
    # One thing each.
    "api_versions": _SMALL,
    "init_producer_id": _SMALL,
    "describe_quorum": _SMALL,
    "describe_cluster": _SMALL,
    "unregister_broker": _SMALL,
    "update_features": _SMALL,
    "list_config_resources": _SMALL,
    "add_raft_voter": _SMALL,
    "remove_raft_voter": _SMALL,
    "peer_hello": _OF_NODES,
    "peer_quorum": _OF_NODES,
    "peer_command": _OF_NODES,
    "peer_client": _OF_NODES,
    "peer_founding": _OF_NODES,
    "node_call": _OF_NODES,
    "log_checksum": _OF_NODES,
    "log_faults": _OF_NODES,
}


def explain_size(api: str, size_bytes: int) -> str:
    return f"a request {api} of {size_bytes} bytes; at most {LIMITS[api].size_bytes} are taken"
