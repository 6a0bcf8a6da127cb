"""The manual of all settings, docs/CONFIGURATION.md, rendered from the tables."""

import sys
from collections.abc import Iterable, Sequence

from millstream.config.broker_table import BROKER_CONFIGS
from millstream.config.kinds import ConfigDefinition, ConfigType
from millstream.config.setting import Setting, Spelling, settings_of
from millstream.config.settings import SECTIONS
from millstream.config.share_table import CONFIGS_OF_GROUPS
from millstream.config.topic import MAX_LONG
from millstream.config.topic_table import TOPIC_CONFIGS
from millstream.config.topics_section import FRIENDLY_NAMES

_INTRODUCTION = """\
# Configuration

This page is rendered from the tables in `src/millstream/config`; change those, then run
`python -m millstream.config.manual > docs/CONFIGURATION.md`.

A setting is taken from, in this order: a flag of the command line, an environment variable, the YAML file
given with `--config` (or named by `MILLSTREAM_CONFIG`), its default. A key that does not exist, or a value
that cannot be used, stops the start with a message that names the key, its place and the nearest valid key.
`millstream config check FILE` checks a file without starting anything.

- **Sizes** are written `512KB`, `1GB` or as a plain number of bytes; units are powers of 1024.
- **Durations** are written `5ms`, `30s`, `10m`, `24h`, `7d`, `2w`.
- `unlimited` (or -1) sets no limit where one can be left out.
- The **environment variable** of `storage.segment_size` is `MILLSTREAM_STORAGE_SEGMENT_SIZE`; that of Kafka's
  `log.roll.ms` is `MILLSTREAM_KAFKA_LOG_ROLL_MS`.

```yaml
broker:
  id: 1
  host: 0.0.0.0
  port: 9092
  advertised_host: queue.example.org
  data_dir: /var/lib/millstream
storage:
  segment_size: 1GB
  retention_time: 7d
  retention_size: 100GB
topics:
  gpu-telemetry:
    partitions: 12
    retention_time: 30d
    compression_type: zstd
kafka:
  log.cleaner.min.cleanable.ratio: 0.3
```

Durability: as long as neither `flush.messages` nor `flush.ms` is set (on the topic, or for all topics with
`storage.fsync_interval` or their Kafka names), an acknowledgement is sent only after the data was flushed.
"""

_TOPICS = """\
## topics

Topics that are created when they do not exist, as soon as there are brokers enough for their replicas; until then the
log says once what each waits for. An existing topic is left as it is: where it is other than declared, the log says
how, and with which command it is changed. One that is deleted while the node runs is created again at the next start,
and one that is taken out of the file stays. `millstream config check` prints the disk that they may take. Beside
`partitions` (default: `broker.default_partitions`) and `replication_factor` (default:
`replication.default_replication_factor`), a topic takes every topic setting below by
Kafka's name, and these by a friendlier one:
"""

_KAFKA = """\
## kafka

Broker settings by Kafka's names. Those marked dynamic can also be changed while the broker runs, with
IncrementalAlterConfigs on a broker; they are the defaults of topics that do not set them.
"""

_TOPIC_SETTINGS = """\
## Topic settings

Set per topic when it is created or later; the default is that of the broker setting named beside it.
"""


_GROUP_SETTINGS = """\
## Group settings

Settings of share groups (queues) and, by `consumer.`, of consumer groups (KIP-848), changed on a group with
IncrementalAlterConfigs. A broker's setting `group.` and the name, where there is one, is the default;
`group.share.min.`, `group.share.max.`, `group.consumer.min.` and `group.consumer.max.` bound them.
"""


def render_manual() -> str:
    """The whole page."""
    parts = [_INTRODUCTION]
    for section, kind in SECTIONS.items():
        rows = [_section_row(key, setting) for key, setting in settings_of(kind).items()]
        table = _table(("key", "default", "values", "Kafka's name", "meaning"), rows)
        parts.append(f"## {section}\n\n{table}")
    friendly = [(f"`{key}`", f"`{name}`", spelling.value) for key, (name, spelling) in FRIENDLY_NAMES.items()]
    parts.append(f"{_TOPICS}\n{_table(('key', 'topic setting', 'written as'), friendly)}")
    topics = [_topic_row(definition) for definition in TOPIC_CONFIGS.values()]
    parts.append(f"{_TOPIC_SETTINGS}\n{_table(('name', 'default', 'values', 'broker', 'meaning'), topics)}")
    groups = [
        (f"`{each.name}`", _default(each), each.accepts(), each.documentation)
        for each in CONFIGS_OF_GROUPS.values()
    ]
    parts.append(f"{_GROUP_SETTINGS}\n{_table(('name', 'default', 'values', 'meaning'), groups)}")
    brokers = [_broker_row(definition) for _, definition in sorted(BROKER_CONFIGS.items())]
    parts.append(f"{_KAFKA}\n{_table(('name', 'default', 'values', 'dynamic', 'meaning'), brokers)}")
    return "\n".join(parts)


def _section_row(key: str, setting: Setting) -> Sequence[str]:
    definition = setting.definition
    default = definition.default
    if default and default != "-1":
        default = setting.spelling.write(default)
    kafka_name = f"`{setting.kafka_name}`" if setting.kafka_name else ""
    values = definition.accepts() if setting.spelling is Spelling.PLAIN else f"a {setting.spelling.value}"
    return f"`{key}`", _code(default), values, kafka_name, definition.documentation


def _topic_row(definition: ConfigDefinition) -> Sequence[str]:
    synonyms = ", ".join(f"`{synonym.name}`" for synonym in definition.synonyms)
    return (
        f"`{definition.name}`",
        _default(definition),
        definition.accepts(),
        synonyms,
        definition.documentation,
    )


def _broker_row(definition: ConfigDefinition) -> Sequence[str]:
    dynamic = "yes" if definition.dynamic else "no"
    return (
        f"`{definition.name}`",
        _default(definition),
        definition.accepts(),
        dynamic,
        definition.documentation,
    )


def _default(definition: ConfigDefinition) -> str:
    if definition.type is ConfigType.LONG and definition.default == str(MAX_LONG):
        return "`2^63-1`"
    return _code(definition.default)


def _code(text: str | None) -> str:
    return f"`{text}`" if text else "not set"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    sys.stdout.write(render_manual())
