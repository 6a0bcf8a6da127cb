"""How cells are called; goals and tables find them by these names."""

SIZES = (100, 1_000, 10_000)


def size_name(size: int) -> str:
    return f"{size} B" if size < 1000 else f"{size // 1000} KB"


def partitions_name(partitions: int) -> str:
    return "1 partition" if partitions == 1 else f"{partitions} partitions"


def produce_name(size: int, partitions: int, acks: str, durability: str) -> str:
    return f"produce {size_name(size)}, {partitions_name(partitions)}, acks={acks}, {durability}"


def consume_name(size: int, partitions: int) -> str:
    return f"consume {size_name(size)}, {partitions_name(partitions)}"


def ratio_name(size: int, *, copied: bool) -> str:
    how = "copied by the client" if copied else "not copied"
    return f"{produce_name(size, 4, 'all', 'relaxed')}, {how}"


def producers_name(size: int, durability: str) -> str:
    return f"64 producers, {size_name(size)}, 12 partitions, acks=all, {durability}"


def latency_name(durability: str) -> str:
    return f"latency at 1,000 msg/s, 100 B, acks=1, {durability}"


CLIENT_SEND_BATCH = "client: send_batch of 100 B"
CLIENT_POLL = "client: poll of 100 B"


def client_name(what: str, side: str) -> str:
    return f"{what}, {side}"


def client_overhead(what: str) -> str:
    return f"{what}, time over raw confluent-kafka"


def client_cpu_overhead(what: str) -> str:
    return f"{what}, CPU of the calling thread over raw confluent-kafka"


FIXTURE_TO_READY = "fixture: start to ready"
FIXTURE_TO_FIRST_MESSAGE = "fixture: start to first message"
FIXTURE_STOP = "fixture: stop"
START_TO_FIRST_ACK = "start: spawn to first acknowledged message"
START_TO_READY = "start: spawn to ready"
IDLE_MEMORY_AT_START = "memory: idle, just started"
IDLE_MEMORY_LATER = "memory: idle, a while later"
MEMORY_AFTER_LOAD = "memory: idle again after 1 million messages"


def restart_to_ready(partitions: int) -> str:
    return f"restart, {partitions:,} partitions: spawn to ready"


def restart_to_first_ack(partitions: int) -> str:
    return f"restart, {partitions:,} partitions: spawn to first acknowledged message"


def restart_stop(partitions: int) -> str:
    return f"restart, {partitions:,} partitions: clean stop"


def rebalance_join(protocol: str, members: int, client: str = "raw") -> str:
    return f"rebalance, {_protocol_name(protocol)}, {members} {client} {_members(members)}: join to whole assignment"


def rebalance_loss(protocol: str, members: int) -> str:
    return f"rebalance, {_protocol_name(protocol)}, {members} raw {_members(members)}: one lost to whole assignment"


def _protocol_name(protocol: str) -> str:
    return "KIP-848" if protocol == "consumer" else protocol


def _members(count: int) -> str:
    return "member" if count == 1 else "members"


MQTT_QUEUE_IN = "mqtt: one queue, messages put in by 10 publishers, relaxed"
MQTT_QUEUE_OUT = "mqtt: one queue, messages delivered to 10 consumers and acknowledged, relaxed"


def mqtt_name(what: str, broker: str, durability: str) -> str:
    return f"mqtt: {what}, {broker} ({durability})"


GATEWAY_POSTS = "gateway: single-message POSTs, 64 connections, relaxed"
GATEWAY_CPU = "gateway: CPU of a node for one of these"
GATEWAY_BATCHED = "gateway: messages of 100 B in batches of 500, 8 connections, relaxed"
GATEWAY_ACKED = "gateway: delivered to 8 streams of a group and acknowledged by lists of ids, relaxed"
GATEWAY_ACKED_SINGLY = "gateway: delivered to 64 streams of a group and acknowledged one by one, relaxed"
GATEWAY_FAN_OUT = "gateway: events to 20 streams, each of its own group, relaxed"
GATEWAY_ALONE_CPU = "gateway alone: CPU at 500 POSTs/s, share of a core"
GATEWAY_ALONE_MEMORY = "gateway alone: memory at 500 POSTs/s"


def gateway_latency(where: str, percentile: str) -> str:
    return f"gateway: latency at 500/s, {where}, {percentile}"


def gateway_added(where: str, percentile: str) -> str:
    return f"gateway: latency added at 500/s by {where} over a direct client, {percentile}"


def gateway_streams(count: int) -> str:
    return f"gateway: memory of {count:,} idle streams"


COMMITS_PER_SECOND = "commits: durable, 64 groups, one under way each"
COMMITS_WITH_8_UNDER_WAY = "commits: durable, 64 groups, eight under way each"


def queue_enqueued(peer: str) -> str:
    return f"queue: enqueue, {peer}"


def queue_delivered(peer: str, consumers: int, *, one_by_one: bool) -> str:
    how = "one by one" if one_by_one else "in batches"
    return f"queue: deliver and acknowledge {how}, {consumers} consumers, {peer}"


QUEUE_IN_BATCHES = f"{queue_delivered('Millstream', 8, one_by_one=False)}, deep"
QUEUE_ONE_BY_ONE = f"{queue_delivered('Millstream', 8, one_by_one=True)}, deep"
