"""Settings of single groups: of share groups (queues), Kafka's, those that Kafka has from 4.4 on, and our own; and of
consumer groups (KIP-848).

A group's setting takes its value from the group, else from the broker's setting `group.<name>` where there is one.
Kafka's bounds of a group's settings are broker settings themselves.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from millstream.config.errors import ConfigError, nearest
from millstream.config.kinds import ConfigDefinition, ConfigType, to_text

_INT, _LONG, _TEXT, _FLAG = ConfigType.INT, ConfigType.LONG, ConfigType.STRING, ConfigType.BOOLEAN

DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
_PREFIX_OF_TOPICS = "errors.deadletterqueue.topic.name.prefix"
_CREATES_TOPICS = "errors.deadletterqueue.auto.create.topics.enable"
TAKES_DEAD_LETTERS = "errors.deadletterqueue.group.enable"


class GroupConfig(msgspec.Struct, frozen=True):
    """A group's settings by their names with underscores."""

    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    share_session_timeout_ms: int = 45_000
    share_heartbeat_interval_ms: int = 5_000
    share_record_lock_duration_ms: int = 30_000
    share_delivery_count_limit: int = 5
    share_partition_max_record_locks: int = 2_000
    share_auto_offset_reset: str = "latest"
    share_isolation_level: str = "read_uncommitted"
    share_renew_acknowledge_enable: bool = True
    share_assignment_interval_ms: int = 1_000
    errors_deadletterqueue_topic_name: str = ""
    errors_deadletterqueue_copy_record_enable: bool = True
    queue_retry_backoff_ms: int = 0
    queue_retry_backoff_max_ms: int = 300_000
    queue_retry_backoff_multiplier: float = 2.0
    queue_retry_total_ms: int = -1

    @property
    def dead_letter_topic(self) -> str | None:
        return self.errors_deadletterqueue_topic_name or None


_DEFAULTS = GroupConfig()


def _group(
    name: str,
    kind: ConfigType,
    documentation: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
    may_be_empty: bool = False,
) -> ConfigDefinition:
    return ConfigDefinition(
        name,
        kind,
        to_text(getattr(_DEFAULTS, name.replace(".", "_"))),
        documentation,
        minimum=minimum,
        maximum=maximum,
        choices=choices,
        may_be_empty=may_be_empty,
    )


_DEFINITIONS = (
    _group(
        "consumer.session.timeout.ms", _INT,
        "How long a member of a consumer group (KIP-848) may be silent.", minimum=1,
    ),
    _group(
        "consumer.heartbeat.interval.ms", _INT,
        "How often members of a consumer group (KIP-848) are told to send a heartbeat.", minimum=1,
    ),
    _group("share.session.timeout.ms", _INT, "How long a member may be silent.", minimum=1),
    _group("share.heartbeat.interval.ms", _INT, "How often members are told to send a heartbeat.", minimum=1),
    _group(
        "share.record.lock.duration.ms", _INT,
        "How long a record that was delivered is kept from others.", minimum=1000, maximum=3_600_000,
    ),
    _group(
        "share.delivery.count.limit", _INT,
        "How often a record is delivered before it is given up.", minimum=2, maximum=25,
    ),
    _group(
        "share.partition.max.record.locks", _INT,
        "Records of a partition that may be out for delivery at once.", minimum=100, maximum=10_000,
    ),
    _group(
        "share.auto.offset.reset", _TEXT,
        "Where a group begins that has not read a partition: earliest, latest, or as by_duration:PT1H.",
    ),
    _group(
        "share.isolation.level", _TEXT, "Whether records of open or aborted transactions are delivered.",
        choices=("read_uncommitted", "read_committed"),
    ),
    _group("share.renew.acknowledge.enable", _FLAG, "Whether consumers may renew their locks."),
    _group(
        "share.assignment.interval.ms", _INT,
        "The shortest time from one assignment of partitions to the next; a member that joins meanwhile waits for it.",
        minimum=0,
    ),
    _group(
        "errors.deadletterqueue.topic.name", _TEXT,
        "The topic that records go to which are rejected, expired or delivered too often. Its name begins with"
        f" {_PREFIX_OF_TOPICS}, and it must set {TAKES_DEAD_LETTERS}. If this is empty, they are dropped.",
        may_be_empty=True,
    ),
    _group(
        "errors.deadletterqueue.copy.record.enable", _FLAG,
        "Whether a dead letter holds key, value and headers of the record, or only says which it was.",
    ),
    _group(
        "queue.retry.backoff.ms", _LONG,
        "How long a record waits after its first failed delivery; 0 delivers it again at once.", minimum=0,
    ),
    _group(
        "queue.retry.backoff.max.ms", _LONG, "The longest wait between two deliveries.", minimum=0,
    ),
    _group(
        "queue.retry.backoff.multiplier", ConfigType.DOUBLE,
        "How much longer each wait is than the one before.", minimum=1, maximum=100,
    ),
    _group(
        "queue.retry.total.ms", _LONG,
        "A record is given up before its waits together are longer than this; -1 sets no limit.", minimum=-1,
    ),
)  # fmt: skip

CONFIGS_OF_GROUPS = {definition.name: definition for definition in _DEFINITIONS}

# A group's setting, its smallest and largest value unless the broker sets others, as in Kafka.
_BOUNDS = {
    "consumer.session.timeout.ms": (45_000, 60_000),
    "consumer.heartbeat.interval.ms": (5_000, 15_000),
    "share.session.timeout.ms": (45_000, 60_000),
    "share.heartbeat.interval.ms": (5_000, 15_000),
    "share.record.lock.duration.ms": (15_000, 60_000),
    "share.delivery.count.limit": (2, 10),
    "share.partition.max.record.locks": (100, 4_000),
    "share.assignment.interval.ms": (0, 15_000),
}


def _broker_settings() -> tuple[ConfigDefinition, ...]:
    settings = [
        ConfigDefinition(
            "group.share.max.size", _INT, "200",
            "The most members of a share group; one more is refused with GROUP_MAX_SIZE_REACHED.",
            minimum=1, maximum=1_000, dynamic=False,
        ),
        ConfigDefinition(
            "group.share.max.share.sessions", _INT, "2000",
            "The most share sessions of a node; one more is refused with SHARE_SESSION_LIMIT_REACHED.",
            minimum=1, dynamic=False,
        ),
        ConfigDefinition(
            "share.coordinator.state.topic.num.partitions", _INT, "50",
            "Partitions of __share_group_state; counts when the topic is made, with the first queue.",
            minimum=1, dynamic=False,
        ),
        ConfigDefinition(
            _PREFIX_OF_TOPICS, _TEXT, "dlq.",
            "What the names of topics for dead letters begin with; empty allows any name.",
            may_be_empty=True,
        ),
        ConfigDefinition(
            _CREATES_TOPICS, _FLAG, "false",
            "Whether a topic for dead letters that does not exist is made with the first letter.",
        ),
    ]  # fmt: skip
    for name, (lowest, highest) in _BOUNDS.items():
        base = CONFIGS_OF_GROUPS[name]
        kind, rest = name.split(".", 1)
        for setting, value, words in (
            (f"group.{name}", base.default, "Default of the group setting"),
            (f"group.{kind}.min.{rest}", str(lowest), "The smallest value of the group setting"),
            (f"group.{kind}.max.{rest}", str(highest), "The largest value of the group setting"),
        ):
            settings.append(
                ConfigDefinition(
                    setting, _INT, value, f"{words} {name}.",
                    minimum=base.minimum, maximum=base.maximum, dynamic=False,
                )
            )  # fmt: skip
    return tuple(settings)


SHARE_BROKER_CONFIGS = _broker_settings()


def group_definition(name: str) -> ConfigDefinition:
    definition = CONFIGS_OF_GROUPS.get(name)
    if definition is None:
        raise ConfigError(name, f"is not a group setting{nearest(name, CONFIGS_OF_GROUPS)}")
    return definition


def check_group_config(overrides: Mapping[str, str], broker: Mapping[str, str]) -> None:
    """ConfigError unless a group may set these on a broker with these settings."""
    for name, text in overrides.items():
        value = group_definition(name).parse(text)
        if name in _BOUNDS:
            low, high = (int(broker.get(bound, default)) for bound, default in _bound_names(name))
            if not low <= int(str(value)) <= high:
                raise ConfigError(name, f"{value} is not allowed here; use {low} to {high}")
    resolved = resolve_group_config(overrides, broker)
    for kind, interval_ms, session_ms in (
        ("share", resolved.share_heartbeat_interval_ms, resolved.share_session_timeout_ms),
        ("consumer", resolved.consumer_heartbeat_interval_ms, resolved.consumer_session_timeout_ms),
    ):
        if interval_ms >= session_ms and any(name.startswith(f"{kind}.") for name in overrides):
            raise ConfigError(
                f"{kind}.heartbeat.interval.ms", f"must be shorter than {kind}.session.timeout.ms"
            )
    reset_duration_ms(resolved.share_auto_offset_reset)
    if resolved.dead_letter_topic is not None:
        check_dead_letter_topic(resolved.dead_letter_topic, broker)


def check_dead_letter_topic(name: str, broker: Mapping[str, str]) -> None:
    """ConfigError if the settings of the brokers do not allow the topic for dead letters."""
    prefix = broker.get(_PREFIX_OF_TOPICS, "dlq.").strip()
    if name.startswith("__"):
        raise ConfigError(DEAD_LETTER_TOPIC, f"{name!r} is not allowed: internal topics begin with __")
    if not name.startswith(prefix):
        raise ConfigError(
            DEAD_LETTER_TOPIC,
            f"{name!r} must begin with {prefix!r}, see the broker setting {_PREFIX_OF_TOPICS}",
        )


def creates_dead_letter_topics(broker: Mapping[str, str]) -> bool:
    return broker.get(_CREATES_TOPICS, "false").strip().lower() == "true"


def resolve_group_config(overrides: Mapping[str, str], broker: Mapping[str, str]) -> GroupConfig:
    """The settings in effect; groups with the same settings share one object."""
    relevant = {name: broker[f"group.{name}"] for name in _BOUNDS if f"group.{name}" in broker}
    return _resolve(tuple(sorted({**relevant, **overrides}.items())))


def inherited_group_text(name: str, broker: Mapping[str, str]) -> str | None:
    return broker.get(f"group.{name}") if name in _BOUNDS else None


def reset_duration_ms(text: str) -> int | None:
    """The duration of `by_duration:`; None for earliest and latest."""
    if text in ("earliest", "latest"):
        return None
    if text.startswith("by_duration:"):
        return _iso_duration_ms(text.removeprefix("by_duration:"))
    raise ConfigError("share.auto.offset.reset", f"{text!r} is not earliest, latest or by_duration:PT1H")


def _iso_duration_ms(text: str) -> int:
    found = re.fullmatch(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", text)
    if found is None or not any(found.groups()):
        raise ConfigError("share.auto.offset.reset", f"{text!r} is not a duration such as PT1H or P1DT12H")
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


def _bound_names(name: str) -> tuple[tuple[str, int], tuple[str, int]]:
    kind, rest = name.split(".", 1)
    low, high = _BOUNDS[name]
    return (f"group.{kind}.min.{rest}", low), (f"group.{kind}.max.{rest}", high)


@lru_cache(maxsize=1024)
def _resolve(settings: tuple[tuple[str, str], ...]) -> GroupConfig:
    values = {(each := group_definition(name)).field: each.parse(text) for name, text in settings}
    return GroupConfig(**values)  # type: ignore[arg-type]
