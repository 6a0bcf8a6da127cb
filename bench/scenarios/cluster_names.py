"""How the cells of the scenarios on three nodes are called."""

from bench.scenarios.names import size_name

ONE_NODE = "one node"
THREE_NODES = "three nodes"
THROUGHPUT_SIZES = (1_000, 100)


def cluster_name(nodes: str, size: int, acks: str, durability: str) -> str:
    return f"{nodes}: produce {size_name(size)}, 12 partitions, acks={acks}, {durability}"


def cluster_latency_name(nodes: str, acks: str, durability: str) -> str:
    return f"{nodes}: latency at 1,000 msg/s, 100 B, acks={acks}, {durability}"


FAILOVER_LEADER = "failover: gap, the leader was not the controller"
FAILOVER_CONTROLLER = "failover: gap, the leader was the controller too"
FAILOVER_LOST = "failover: acknowledged messages lost"
FAILOVER_TWICE = "failover: messages stored twice"
FAILOVER_BACK = "failover: restart after kill -9 to in sync again"


def failover_name(percentile: str) -> str:
    return f"failover: gap between acknowledged writes, {percentile}"


CATCH_UP_AWAY = "catch-up: after being away"
CATCH_UP_EMPTY = "catch-up: from an empty disk"
CATCH_UP_READY = "catch-up: restart after kill -9 to ready"
CATCH_UP_IN_SYNC = "catch-up: restart after kill -9 to in sync again"
REASSIGNMENT = "reassignment: all replicas of one node to a new one"


def create_name(topics: int) -> str:
    return f"metadata: create {topics:,} topics of 12 partitions, RF 3, in one request"


def create_answered_name(topics: int) -> str:
    return f"{create_name(topics)}, answered"


def changes_name(under_way: int, partitions: str) -> str:
    return f"metadata: topics created, one a request, {under_way} under way, {partitions}"


def controller_name(what: str, partitions: int) -> str:
    return f"metadata: controller killed with {partitions:,} partitions to {what}"


A_NEW_ONE_ANSWERS = "a change by the new one"
ALL_LED = "a leader for every partition"
BACK_IN_SYNC = "all in sync after its restart"

QUEUE_LEADERS_MOVED = "queue of 12 partitions on three nodes: leaders that moved while it was filled"


def queue_filled_name(acks: str) -> str:
    return f"queue of 12 partitions on three nodes: enqueue 100 B, acks={acks}, durable"


QUEUE_FAILOVER_ANOMALIES = "queue: messages lost or delivered after they were settled, leaders killed"


def queue_failover_name(percentile: str) -> str:
    return f"queue: leader killed to the next settled message of its partition, {percentile}"
