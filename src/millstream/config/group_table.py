"""Broker settings about consumer groups: Kafka's, and bounds that Kafka lacks."""

from functools import partial

from millstream.config.kinds import ConfigDefinition, ConfigType

_group = partial(ConfigDefinition, dynamic=False)

GROUP_CONFIGS = (
    _group(
        "group.initial.rebalance.delay.ms", ConfigType.INT, "3000",
        "How long an empty classic group waits for more members before its first assignment.", minimum=0,
    ),
    _group(
        "group.min.session.timeout.ms", ConfigType.INT, "6000",
        "The shortest session timeout a member of a classic group may ask for.", minimum=1,
    ),
    _group(
        "group.max.session.timeout.ms", ConfigType.INT, "1800000",
        "The longest session timeout a member of a classic group may ask for.", minimum=1,
    ),
    _group(
        "group.max.size", ConfigType.INT, "10000",
        "The most members of a classic group; one more is refused with GROUP_MAX_SIZE_REACHED.", minimum=1,
    ),
    _group(
        "group.max.count", ConfigType.INT, "50000",
        "The most groups that this node coordinates, empty ones with offsets too; a further one is refused with"
        " COORDINATOR_NOT_AVAILABLE, which clients retry.", minimum=1,
    ),
    _group(
        "group.max.bytes", ConfigType.LONG, "268435456",
        "What members of all groups of this node may say about themselves and be assigned, together; more is refused"
        " with COORDINATOR_NOT_AVAILABLE.", minimum=1,
    ),
    _group(
        "group.member.max.bytes", ConfigType.INT, "1048576",
        "What one member may say about itself, and be assigned; more is refused with INVALID_REQUEST.", minimum=1024,
    ),
    _group(
        "group.consumer.regex.max.length", ConfigType.INT, "1000",
        "The longest regular expression a member may subscribe by; a longer one is refused with"
        " INVALID_REGULAR_EXPRESSION.", minimum=1,
    ),
    _group(
        "group.consumer.regex.max.count", ConfigType.INT, "100",
        "Different regular expressions in one group; one more is refused with GROUP_MAX_SIZE_REACHED.", minimum=1,
    ),
    _group(
        "offsets.max.count", ConfigType.INT, "2000000",
        "The most committed offsets that this node keeps for groups; a commit of a further partition is refused with"
        " COORDINATOR_NOT_AVAILABLE.", minimum=1,
    ),
    _group(
        "offsets.max.bytes", ConfigType.LONG, str(256 * 1024 * 1024),
        "The most bytes of metadata beside the committed offsets that this node keeps for groups; a commit with more is"
        " refused with COORDINATOR_NOT_AVAILABLE.", minimum=0,
    ),
    _group(
        "group.consumer.max.size", ConfigType.INT, "10000",
        "The most members of a consumer group (KIP-848); one more is refused with GROUP_MAX_SIZE_REACHED.", minimum=1,
    ),
    _group(
        "group.consumer.assignors", ConfigType.LIST, "uniform,range",
        "The assignors that members may choose from; the first is the default.", choices=("uniform", "range"),
    ),
    _group(
        "group.consumer.migration.policy", ConfigType.STRING, "bidirectional",
        "Which way a group with members may change between the classic and the KIP-848 protocol.",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
    ),
    _group(
        "offset.metadata.max.bytes", ConfigType.INT, "4096",
        "The largest metadata a client may commit with an offset.", minimum=0,
    ),
    _group(
        "offsets.retention.minutes", ConfigType.INT, "10080",
        "How long offsets are kept after their group became empty or stopped reading their topic.", minimum=1,
    ),
    _group(
        "offsets.retention.check.interval.ms", ConfigType.LONG, "600000",
        "How often offsets are checked against their retention.", minimum=1,
    ),
    _group(
        "offsets.topic.num.partitions", ConfigType.INT, "50",
        "Partitions of __consumer_offsets; counts when the topic is made, with the first group.", minimum=1,
    ),
)  # fmt: skip
