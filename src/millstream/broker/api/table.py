"""All APIs that a node serves, one row each: all that dispatch has to know about them.

Versions are in `protocol/api.py`, limits in `protocol/limits.py`, how requests are read and replies written in
`codecs.py`. A handler is named here and imported with its first request: most nodes see few of the APIs.
"""

import enum

import msgspec

from millstream.broker.api import permissions as needs
from millstream.broker.api.permissions import Needs, cluster, group, groups, topics
from millstream.broker.api.sliced_requests import SlicePlan
from millstream.broker.server.listener import Listener, NewRelay
from millstream.doors.access import Operation
from millstream.protocol.api import APIS, OWN_APIS, PEER_APIS, Api


class ListenerKind(enum.Enum):
    """For whom a listener is. Nodes are served all APIs, because they forward their clients' requests."""

    CLIENTS = "clients"
    NODES = "nodes"


class ApiRow(msgspec.Struct, frozen=True):
    api: Api
    handler: str
    """The module within `millstream.broker`, and the function or class in it."""
    needs: Needs
    """The permissions that a request's caller must have."""
    listeners: frozenset[ListenerKind]
    slices: SlicePlan | None = None
    """How a long request is split into several whose answers are joined."""
    is_in_order: bool = True
    """Whether later requests of the connection wait until this one is answered."""


_EVERYWHERE = frozenset(ListenerKind)
_NODES = frozenset({ListenerKind.NODES})
_BY_NAME = {api.name: api for api in (*APIS.values(), *PEER_APIS.values(), *OWN_APIS.values())}
_PARTITIONS = ("topics", "partitions")
# Modules with several handlers.
_SHARED = {
    name: module
    for module, names in {
        "assigned_groups": (
            "consumer_group_describe",
            "consumer_group_heartbeat",
            "share_group_describe",
            "share_group_heartbeat",
        ),
        "all_groups": ("delete_groups", "list_groups"),
        "classic_groups": ("describe_groups", "heartbeat", "join_group", "leave_group", "sync_group"),
        "cluster": (
            "add_raft_voter",
            "describe_cluster",
            "describe_quorum",
            "remove_raft_voter",
            "unregister_broker",
            "update_features",
        ),
        "configs": (
            "alter_configs",
            "describe_configs",
            "incremental_alter_configs",
            "list_config_resources",
        ),
        "group_offsets": ("offset_delete", "offset_fetch"),
        "log_dirs": ("alter_replica_log_dirs", "describe_log_dirs"),
        "metadata": ("api_versions",),
        "not_offered": ("describe_transactions", "list_transactions"),
        "producers": ("describe_producers", "init_producer_id"),
        "reassignments": ("alter_partition_reassignments", "elect_leaders", "list_partition_reassignments"),
        "share_group_offsets": (
            "alter_share_group_offsets",
            "delete_share_group_offsets",
            "describe_share_group_offsets",
        ),
        "topics": ("create_partitions", "create_topics", "delete_topics"),
    }.items()
    for name in names
}


def _row(
    name: str,
    needs: Needs,
    *,
    handler: str = "",
    module: str = "",
    slices: SlicePlan | None = None,
    is_in_order: bool = True,
) -> ApiRow:
    """The row of an API for clients; other nodes use it too when they forward a client's requests.

    Its handler is `handle` in a module named as the API, or a function named as the API in a shared module.
    """
    shared = module or _SHARED.get(name, "")
    named = f"handlers.{shared or name}:{handler or (name if shared else 'handle')}"
    return ApiRow(_BY_NAME[name], named, needs, _EVERYWHERE, slices, is_in_order)


def _unsecured_row(name: str, function: str, operation: Operation) -> ApiRow:
    """The row of an API about access rules, users or quotas, which this cluster does not have."""
    return _row(name, cluster(operation), module="not_offered", handler=function)


def _node_row(
    name: str, handler: str, listeners: frozenset[ListenerKind] = _NODES, *, is_in_order: bool = True
) -> ApiRow:
    """The row of an API between nodes; our own tools use some of them, on the clients' listener too."""
    action = cluster(Operation.CLUSTER_ACTION)
    return ApiRow(_BY_NAME[name], handler, action, listeners, is_in_order=is_in_order)


def _share_state_row(name: str, function: str) -> ApiRow:
    """The row of an API that brokers send to a share coordinator."""
    return _row(name, cluster(Operation.CLUSTER_ACTION), module="share_group_state", handler=function)


# Elements of a slice that may each have ten thousand parts: members of a group.
_LARGE_EACH = 1
_OF_MEMBERS = group(Operation.READ)
_OF_CONSUMERS = needs.both(_OF_MEMBERS, topics(Operation.READ))
_OF_OFFSETS = needs.both(_OF_MEMBERS, topics(Operation.READ, name="topic_name"))

TABLE: dict[int, ApiRow] = {
    row.api.key: row
    for row in (
        _row("produce", needs.produce, handler="Produce"),
        _row("fetch", needs.fetch, handler="Fetch"),
        _row(
            "list_offsets",
            topics(Operation.DESCRIBE),
            slices=SlicePlan(_PARTITIONS, _PARTITIONS, (("name",),), once=("name", "partition_index")),
        ),
        _row("metadata", needs.metadata, handler="Metadata"),
        _row("offset_commit", needs.offset_commit, handler="OffsetCommit"),
        _row(
            "offset_fetch",
            needs.offset_fetch,
            slices=SlicePlan(
                ("groups", "topics", "partition_indexes"),
                ("groups", "topics", "partitions"),
                (("group_id", "error_code"), ("name", "topic_id")),
                once="group_id",
            ),
        ),
        _row(
            "find_coordinator",
            needs.find_coordinator,
            handler="FindCoordinator",
            slices=SlicePlan(("coordinator_keys",), ("coordinators",), once=""),
        ),
        _row("join_group", _OF_MEMBERS),
        _row("heartbeat", _OF_MEMBERS),
        _row("leave_group", _OF_MEMBERS),
        _row("sync_group", _OF_MEMBERS),
        _row(
            "describe_groups",
            groups(Operation.DESCRIBE),
            slices=SlicePlan(("groups",), ("groups",), slice=_LARGE_EACH, once=""),
        ),
        _row("list_groups", cluster(Operation.DESCRIBE)),
        _row("api_versions", needs.nothing),
        _row("create_topics", topics(Operation.CREATE)),
        _row("delete_topics", topics(Operation.DELETE)),
        _row(
            "delete_records",
            topics(Operation.DELETE),
            slices=SlicePlan(_PARTITIONS, _PARTITIONS, (("name",),), is_read=False),
        ),
        _row("init_producer_id", needs.init_producer_id),
        _row(
            "offset_for_leader_epoch",
            topics(Operation.DESCRIBE, name="topic"),
            slices=SlicePlan(_PARTITIONS, _PARTITIONS, (("topic",),), once=("topic", "partition")),
        ),
        _row(
            "describe_configs",
            needs.configs(Operation.DESCRIBE_CONFIGS),
            slices=SlicePlan(("resources",), ("results",), slice=10, once=""),
        ),
        _row("alter_configs", needs.configs(Operation.ALTER_CONFIGS)),
        _row("describe_log_dirs", cluster(Operation.DESCRIBE)),
        _row("create_partitions", topics(Operation.ALTER)),
        _row(
            "delete_groups",
            groups(Operation.DELETE, "groups_names"),
            slices=SlicePlan(("groups_names",), ("results",), is_read=False),
        ),
        _row("elect_leaders", cluster(Operation.ALTER)),
        _row("incremental_alter_configs", needs.configs(Operation.ALTER_CONFIGS)),
        _row("alter_partition_reassignments", cluster(Operation.ALTER)),
        _row("list_partition_reassignments", cluster(Operation.DESCRIBE)),
        _row("offset_delete", needs.both(group(Operation.DELETE), topics(Operation.READ))),
        _unsecured_row("describe_acls", "describe_acls", Operation.DESCRIBE),
        _unsecured_row("create_acls", "create_acls", Operation.ALTER),
        _unsecured_row("delete_acls", "delete_acls", Operation.ALTER),
        *(
            _row(f"{change}_delegation_token", needs.nothing, module="not_offered", handler="refuse_token")
            for change in ("create", "renew", "expire", "describe")
        ),
        _unsecured_row("describe_client_quotas", "describe_quotas", Operation.DESCRIBE_CONFIGS),
        _unsecured_row("alter_client_quotas", "alter_quotas", Operation.ALTER_CONFIGS),
        _unsecured_row("describe_user_scram_credentials", "describe_users", Operation.DESCRIBE),
        _unsecured_row("alter_user_scram_credentials", "alter_users", Operation.ALTER),
        _row("describe_quorum", cluster(Operation.DESCRIBE)),
        _row("describe_cluster", needs.nothing),
        _row("alter_replica_log_dirs", cluster(Operation.ALTER)),
        _row("update_features", cluster(Operation.ALTER)),
        _row("describe_producers", topics(Operation.READ)),
        _row("describe_transactions", needs.transactional_ids),
        _row("list_transactions", needs.nothing),
        _row("unregister_broker", cluster(Operation.ALTER)),
        _row(
            "consumer_group_heartbeat",
            needs.both(_OF_MEMBERS, topics(Operation.DESCRIBE, "subscribed_topic_names")),
        ),
        _row(
            "consumer_group_describe",
            groups(Operation.DESCRIBE, "group_ids"),
            slices=SlicePlan(("group_ids",), ("groups",), slice=_LARGE_EACH, once=""),
        ),
        _row(
            "share_group_heartbeat",
            needs.both(_OF_MEMBERS, topics(Operation.DESCRIBE, "subscribed_topic_names")),
        ),
        _row(
            "share_group_describe",
            groups(Operation.DESCRIBE, "group_ids"),
            slices=SlicePlan(("group_ids",), ("groups",), slice=_LARGE_EACH, once=""),
        ),
        # They are decided in order, and share the writes that they wait for.
        _row("share_fetch", _OF_CONSUMERS, handler="ShareFetch", is_in_order=False),
        _row("share_acknowledge", _OF_CONSUMERS, handler="ShareAcknowledge", is_in_order=False),
        _row(
            "describe_share_group_offsets",
            needs.share_offsets,
            slices=SlicePlan(
                ("groups", "topics", "partitions"),
                ("groups", "topics", "partitions"),
                (("group_id", "error_code"), ("topic_name",)),
                once="group_id",
            ),
        ),
        _row("alter_share_group_offsets", _OF_OFFSETS),
        _row("delete_share_group_offsets", _OF_OFFSETS),
        _share_state_row("initialize_share_group_state", "initialize"),
        _share_state_row("read_share_group_state", "read"),
        _share_state_row("write_share_group_state", "write"),
        _share_state_row("delete_share_group_state", "delete"),
        _share_state_row("read_share_group_state_summary", "summary"),
        _row("list_config_resources", cluster(Operation.DESCRIBE_CONFIGS)),
        _row("describe_topic_partitions", topics(Operation.DESCRIBE)),
        _row("add_raft_voter", cluster(Operation.ALTER)),
        _row("remove_raft_voter", cluster(Operation.ALTER)),
        _node_row("peer_hello", "peers.apis:hello"),
        _node_row("peer_quorum", "peers.apis:quorum"),
        # The quorum's messages use the same connection, and must not be held up.
        _node_row("peer_command", "peers.apis:command", is_in_order=False),
        _node_row("peer_client", "peers.apis:client", _EVERYWHERE),
        _node_row("peer_founding", "peers.apis:founding", _EVERYWHERE, is_in_order=False),
        _node_row("node_call", "routing.served_calls:node_call"),
        # The permissions depend on the call inside, and are checked there.
        _row("queue_call", needs.nothing, is_in_order=False),
        # One at a time: a client cannot make the node read more than it waits for.
        _node_row("log_checksum", "handlers.log_checksum:handle", _EVERYWHERE),
        _node_row("log_faults", "replicas.log_faults:handle", _EVERYWHERE),
    )
}


def served_at(kind: ListenerKind) -> frozenset[int]:
    """The keys of the APIs that a listener of this kind serves."""
    return frozenset(key for key, row in TABLE.items() if kind in row.listeners)


def listener_for(kind: ListenerKind, name: str, option: str, new_relay: NewRelay | None = None) -> Listener:
    return Listener(name, served_at(kind), kind is ListenerKind.NODES, option, new_relay)
