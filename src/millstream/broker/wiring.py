"""Which parts of the node each handler takes, by API. Like `node.py` it only connects; nothing else imports it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.broker.coordinators.groups import Groups
    from millstream.broker.node import Broker
    from millstream.broker.routing.not_here import NoGroups

_OF_METADATA = (
    "add_raft_voter", "alter_partition_reassignments", "delete_topics", "describe_quorum", "describe_topic_partitions",
    "elect_leaders", "init_producer_id", "list_config_resources", "list_partition_reassignments", "remove_raft_voter",
    "unregister_broker",
)  # fmt: skip
_OF_DEFAULTS = (
    "alter_configs", "create_partitions", "create_topics", "describe_configs", "incremental_alter_configs",
)  # fmt: skip
_OF_GROUPS = (
    "consumer_group_heartbeat", "describe_groups", "heartbeat", "join_group", "leave_group",
    "list_groups", "sync_group",
)  # fmt: skip
_OF_GROUPS_AND_METADATA = ("consumer_group_describe", "offset_commit", "offset_delete", "offset_fetch")
_OF_SHARE_OFFSETS = (
    "alter_share_group_offsets", "delete_share_group_offsets", "describe_share_group_offsets",
)  # fmt: skip
_OF_SHARE_STATE = (
    "delete_share_group_state", "initialize_share_group_state", "read_share_group_state",
    "read_share_group_state_summary", "write_share_group_state",
)  # fmt: skip
_OF_MEMBERSHIP = ("peer_client", "peer_command", "peer_hello", "peer_quorum")

Parts = tuple[Any, ...]


class HandlerParts:
    """Asked for each handler once, with the first request for it."""

    def __init__(self, node: "Broker", groups: "Callable[[], Groups | NoGroups]") -> None:
        """`groups` are the node's, or something in their place."""
        self._of: dict[str, Callable[[], Parts]] = {
            "api_versions": lambda: (),
            "produce": lambda: (
                node.appends,
                node.opener,
                node.delayed,
                node.metrics.produce_requests,
            ),
            "fetch": lambda: (
                node.fetch_sessions,
                node.follower_fetches,
                node.client_fetches,
                node.clock,
                node.metrics.fetch_requests,
            ),
            "metadata": lambda: (
                node.metadata,
                node.view,
                node.long_work,
                node.server.memory,
                node.tasks,
                node.settings.broker.rack,
                node.defaults if node.auto_create_topics else None,
            ),
            "list_offsets": lambda: (node.partitions, node.faults, node.long_work),
            "offset_for_leader_epoch": lambda: (node.partitions,),
            "delete_records": lambda: (node.partitions, node.upkeep, node.replication),
            "describe_cluster": lambda: (node.metadata, node.node_id, node.settings.broker.rack),
            "describe_log_dirs": lambda: (node.metadata, node.partitions, node.disk, node.store.data_dir),
            "find_coordinator": lambda: (node.metadata, node.view, groups(), node.coordinators),
            "share_group_heartbeat": lambda: (groups(),),
            "share_group_describe": lambda: (groups(), node.metadata),
            "share_fetch": lambda: (node.session_work,),
            "share_acknowledge": lambda: (node.session_work,),
            "delete_groups": lambda: (groups(), node.share_offsets, node.metadata),
            "queue_call": lambda: (node.queue_calls,),
            "log_checksum": lambda: (node.partitions, node.faults),
            "node_call": lambda: (node.node_doors.served,),
            "peer_founding": lambda: (node.membership, node.state),
            **{name: lambda: (node.metadata,) for name in _OF_METADATA},
            **{name: lambda: (node.metadata, node.defaults) for name in _OF_DEFAULTS},
            **{name: lambda: (groups(),) for name in _OF_GROUPS},
            **{name: lambda: (groups(), node.metadata) for name in _OF_GROUPS_AND_METADATA},
            **{name: lambda: (node.membership,) for name in _OF_MEMBERSHIP},
            **{name: lambda: (node.share_offsets, node.metadata) for name in _OF_SHARE_OFFSETS},
            **{name: lambda: (node.node_doors.doors.coordinators,) for name in _OF_SHARE_STATE},
        }

    def __call__(self, name: str) -> Parts:
        return self._of[name]()
