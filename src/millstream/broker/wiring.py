"""The collaborators of each handler, by API. Like `node.py` this only connects parts.

They are passed by position, which mypy does not check; `tests/unit/broker/api/test_table.py` compares them with each
handler's type hints.
"""

import importlib
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from millstream.protocol.codec import import_kio

if TYPE_CHECKING:
    from millstream.broker.coordinators.groups import Groups, NoGroups
    from millstream.broker.handlers.fetch import ClientFetches
    from millstream.broker.node import Node
    from millstream.broker.replicas.serving import FollowerFetches
    from millstream.broker.routing.relays import Relays
    from millstream.broker.routing.targets import Routing
    from millstream.cluster.founding_messages import NodeState
    from millstream.runtime.workers import Workers

_ALONE = (
    "alter_client_quotas", "alter_user_scram_credentials", "api_versions", "create_acls", "create_delegation_token",
    "delete_acls", "describe_acls", "describe_client_quotas", "describe_delegation_token", "describe_transactions",
    "describe_user_scram_credentials", "expire_delegation_token", "list_transactions", "renew_delegation_token",
    "update_features",
)  # fmt: skip
_OF_METADATA = (
    "add_raft_voter", "alter_partition_reassignments", "delete_topics", "describe_quorum", "describe_topic_partitions",
    "elect_leaders", "init_producer_id", "list_config_resources", "list_partition_reassignments", "remove_raft_voter",
    "unregister_broker",
)  # fmt: skip
_OF_DEFAULTS = (
    "alter_configs", "create_partitions", "create_topics", "incremental_alter_configs",
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
    """Called once for each API, with its first request."""

    def __init__(self, node: "Node", groups: "Callable[[], Groups | NoGroups] | None" = None) -> None:
        """`groups` replaces the node's own, if given."""
        self._node = node
        self._groups: Callable[[], Groups | NoGroups] = groups or (lambda: node.services.groups)
        self._of: dict[str, Callable[[], Parts]] = {
            "produce": lambda: (
                node.logs.appends, node.logs.opener, node.delayed, node.metrics.produce_requests,
            ),
            "fetch": lambda: (
                node.fetch_sessions, self.follower_fetches, self.client_fetches, node.machine.clock,
                node.metrics.fetch_requests,
            ),
            "metadata": lambda: (
                node.metadata, node.view, node.long_work, node.server.memory, node.tasks, node.settings.broker.rack,
                node.defaults if node.settings.broker.auto_create_topics else None,
            ),
            "list_offsets": lambda: (node.partitions, node.logs.faults, node.long_work),
            "offset_for_leader_epoch": lambda: (node.partitions,),
            "describe_producers": lambda: (node.partitions,),
            "delete_records": lambda: (node.partitions, node.upkeep, node.replicas.replication),
            "describe_configs": lambda: (node.metadata, node.defaults, node.settings.shown_configs),
            "describe_cluster": lambda: (node.metadata, node.node_id, node.settings.broker.rack),
            "describe_log_dirs": lambda: (
                node.metadata, node.partitions, node.machine.disk, node.store.data_dir,
            ),
            "alter_replica_log_dirs": lambda: (node.partitions, node.store.data_dir),
            "find_coordinator": lambda: (node.metadata, node.view, self._groups(), node.services.coordinators),
            "share_group_heartbeat": lambda: (self._groups(),),
            "share_group_describe": lambda: (self._groups(), node.metadata),
            "share_fetch": lambda: (node.services.session_work,),
            "share_acknowledge": lambda: (node.services.session_work,),
            "delete_groups": lambda: (self._groups(), node.services.share_offsets, node.metadata),
            "queue_call": lambda: (node.services.queue_calls,),
            "log_checksum": lambda: (node.partitions, node.logs.faults),
            "log_faults": lambda: (node.replicas.faults,),
            "node_call": lambda: (node.services.node_doors.served,),
            "peer_founding": lambda: (node.membership, self._state_alone, node.listening.for_nodes),
            **{name: lambda: () for name in _ALONE},
            **{name: lambda: (node.metadata,) for name in _OF_METADATA},
            **{name: lambda: (node.metadata, node.defaults) for name in _OF_DEFAULTS},
            **{name: lambda: (self._groups(),) for name in _OF_GROUPS},
            **{name: lambda: (self._groups(), node.metadata) for name in _OF_GROUPS_AND_METADATA},
            **{name: lambda: (node.membership,) for name in _OF_MEMBERSHIP},
            **{name: lambda: (node.services.share_offsets, node.metadata) for name in _OF_SHARE_OFFSETS},
            **{name: lambda: (node.services.node_doors.doors.coordinators,) for name in _OF_SHARE_STATE},
        }  # fmt: skip

    def __call__(self, name: str) -> Parts:
        return self._of[name]()

    def _state_alone(self) -> "NodeState":
        """The state of a node that runs without others and serves."""
        from millstream.cluster.founding_messages import NodeState

        return NodeState(self._node.node_id, self._node.metadata.image.cluster_id, "")

    @cached_property
    def client_fetches(self) -> "ClientFetches":
        from millstream.broker.handlers.fetch import ClientFetches

        node = self._node
        return ClientFetches(
            node.logs.reads, node.replicas.replication.preferred_reader, node.server.memory,
            node.server.reply_memory, node.long_work, node.delayed, node.tasks,
        )  # fmt: skip

    @cached_property
    def follower_fetches(self) -> "FollowerFetches":
        from millstream.broker.replicas.serving import FollowerFetches

        node, replicas = self._node, self._node.replicas
        return FollowerFetches(
            node.logs.reads, replicas.replication, replicas.followers_throttle, node.metadata, node.delayed
        )


def new_relays(node: "Node", routing: "Routing") -> "Relays":
    """The relays of clients whose requests this node forwards."""
    from millstream.broker.coordinators.groups import NoGroups
    from millstream.broker.routing.relays import Relays

    refusing = node.new_dispatcher(HandlerParts(node, lambda: NoGroups(node.services.groups)))
    relays = Relays(
        node.settings.broker, routing, lambda: node.metadata.image, lambda: node.listening.for_clients,
        node.machine, node.server, node.dispatcher, refusing, node.fetch_sessions,
        lambda: node.handlers.client_fetches, node.long_work, node.metrics,
    )  # fmt: skip
    node.isolation.on_cut_off.append(relays.cut_off)
    return relays


def warm_up(workers: "Workers") -> None:
    """Import in a thread the modules that the first request other than produce and fetch needs."""
    # An error here is ignored: the import fails again, with a message, when the module is needed.
    workers.submit(_import_most_used, lambda _result, _error: None)


def _import_most_used() -> None:
    import_kio()
    importlib.import_module("millstream.broker.handlers.list_offsets")
