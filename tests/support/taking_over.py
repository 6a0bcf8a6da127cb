"""Whether the rest of a cluster has taken over from a node that can do its part no longer."""

from support.acked_writes import AckedWriter
from support.cluster import ClusterProcesses, eventually


def others_go_on(cluster: ClusterProcesses, topic: str, writer: AckedWriter, ill: int) -> None:
    """Every partition is led by another, and written to without it."""
    via = cluster.others(ill)[0]
    eventually(
        lambda: cluster.topics(via)[topic],
        lambda leaders: ill not in leaders and -1 not in leaders,
        "leaders that can write",
    )
    writer.wait_for(100)
    eventually(
        lambda: cluster.in_sync_sets(topic, via),
        lambda seen: all(ill not in each for each in seen),
        "in-sync sets without it",
    )
