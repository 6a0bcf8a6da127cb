"""The share coordinator on this node: what it keeps, and how its topic is made."""

from collections.abc import Mapping

from millstream.coordinator.definition import Definition, InternalTopic
from millstream.coordinator.shares.coordinator import ShareCoordinator
from millstream.coordinator.shares.requests import ShareRequest
from millstream.protocol.internal_topics import SHARE_STATE_TOPIC

_PARTITIONS = "share.coordinator.state.topic.num.partitions"


def share_state(configs: Mapping[str, str]) -> Definition[ShareCoordinator]:
    # Snapshots make what is before them needless, and the coordinator trims it: nothing else may.
    kept = (("cleanup.policy", "delete"), ("retention.ms", "-1"), ("retention.bytes", "-1"))
    return Definition(
        InternalTopic(SHARE_STATE_TOPIC, int(configs.get(_PARTITIONS, "50")), kept),
        lambda _: ShareCoordinator(),
        ShareRequest,
    )
