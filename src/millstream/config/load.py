"""Settings from flags, the environment and a file, in this order of precedence, over the defaults."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from millstream.config.checks import check_addresses, check_replication, check_roles, check_timing
from millstream.config.definitions import broker_definition, inherited_text
from millstream.config.errors import ConfigError, nearest
from millstream.config.other_names import PROFILES, translate
from millstream.config.setting import Setting, Spelling, settings_of
from millstream.config.settings import SECTIONS, Settings
from millstream.config.sources import CONFIG_FILE_VARIABLE, Entry, from_environment, from_flags
from millstream.config.topic_table import TOPIC_CONFIGS
from millstream.config.topics_section import read_topic

# Several names may stand for one setting (log.retention.ms, .minutes, .hours): a source that uses any of
# them overrides weaker sources that use the others.
_FAMILIES = [[synonym.name for synonym in topic.synonyms] for topic in TOPIC_CONFIGS.values()]
_FAMILY = {name: family for family in _FAMILIES for name in family}
_TOPIC_BY_BROKER_NAME = {topic.synonyms[0].name: topic for topic in TOPIC_CONFIGS.values() if topic.synonyms}


class _Given(msgspec.Struct, frozen=True):
    text: str
    kafka_name: str | None
    entry: Entry


def load_settings(
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Settings:
    """The settings of a node, or a ConfigError that names the key, where it stands, and what to write.

    `flags` are `{"section.key": value}`; None stands for a flag that was not given. Without `file`, the file
    is the one the variable MILLSTREAM_CONFIG names, if any.
    """
    environ = environ or {}
    if file is None and environ.get(CONFIG_FILE_VARIABLE):
        file = Path(environ[CONFIG_FILE_VARIABLE])
    from_yaml: list[Entry] = []
    warnings: list[str] = []
    if file is not None:
        # Reading YAML costs a start without a file some 20 ms for nothing.
        from millstream.config.settings_file import from_file

        translated = translate(from_file(file))
        from_yaml, warnings = translated.entries, translated.warnings
    layers = [from_yaml, from_environment(environ), from_flags(flags or {})]
    given: dict[str, _Given] = {}
    for layer in (_profile(layers), *layers):
        read = _read_layer([entry for entry in layer if entry.section != "topics"])
        for name in read:
            for other in _FAMILY.get(name, ()):
                given.pop(other, None)
        given.update(read)
    topics = [entry for entry in from_yaml if entry.section == "topics"]
    return _build(given, topics, tuple(warnings))


def _profile(layers: list[list[Entry]]) -> list[Entry]:
    """The profile's settings, if one is chosen; the last source that names one counts."""
    chosen = [entry.value for layer in layers for entry in layer if entry.name == "broker.profile"]
    return list(PROFILES.get(str(chosen[-1]), ())) if chosen else []


def _read_layer(entries: list[Entry]) -> dict[str, _Given]:
    """One source's settings, by Kafka's name if there is one, else by `section.key`."""
    read: dict[str, _Given] = {}
    for entry in entries:
        setting = _setting(entry)
        if entry.value is None:
            continue
        name = setting.kafka_name or entry.name
        if name in read:
            advice = f"is the same setting as {read[name].entry.name}; keep one"
            raise ConfigError(entry.name, advice, entry.where)
        read[name] = _Given(setting.read(entry.name, entry.value, entry.where), setting.kafka_name, entry)
    return read


def _setting(entry: Entry) -> Setting:
    if entry.section == "kafka":
        try:
            return Setting(broker_definition(entry.key), Spelling.PLAIN, entry.key)
        except ConfigError as error:
            raise error.at(entry.where) from None
    section = SECTIONS.get(entry.section)
    if section is None:
        advice = nearest(entry.section, [*SECTIONS, "topics", "kafka"])
        raise ConfigError(entry.section, f"is not a section of the settings{advice}", entry.where)
    keys = settings_of(section)
    if entry.key in keys:
        return keys[entry.key]
    raise ConfigError(entry.name, f"is not a setting{_nearest_key(entry, keys)}", entry.where)


def _nearest_key(entry: Entry, keys: Mapping[str, Setting]) -> str:
    """Prefer a key of the same section, then the same or a similar key of another."""
    within = nearest(entry.key, keys)
    if within:
        return within
    everywhere = [f"{section}.{key}" for section, kind in SECTIONS.items() for key in settings_of(kind)]
    moved = [name for name in everywhere if name.partition(".")[2] == entry.key]
    return f"; did you mean {moved[0]!r}?" if moved else nearest(entry.name, everywhere)


def _build(given: Mapping[str, _Given], topics: list[Entry], warnings: tuple[str, ...]) -> Settings:
    kafka = {each.kafka_name: each.text for each in given.values() if each.kafka_name}
    sections: dict[str, Any] = {}
    for section, kind in SECTIONS.items():
        values = {}
        for key, setting in settings_of(kind).items():
            text = _text(section, key, setting, given, kafka)
            if text is not None:
                values[key] = setting.value(text)
        sections[section] = kind(**values)
    read = tuple(read_topic(entry, sections["broker"], sections["replication"], kafka) for entry in topics)
    settings = Settings(**sections, topics=read, kafka=kafka, warnings=warnings)
    places = {f"topics.{entry.key}": entry.where for entry in topics}
    places.update((name, each.entry.where) for name, each in given.items())
    check_roles(settings, places.get)
    check_addresses(settings, places.get)
    check_replication(settings, places.get)
    check_timing(settings, places.get)
    return settings


def _text(
    section: str, key: str, setting: Setting, given: Mapping[str, _Given], kafka: Mapping[str, str]
) -> str | None:
    name = setting.kafka_name
    if name is None:
        own = given.get(f"{section}.{key}")
        return own.text if own else None
    topic = _TOPIC_BY_BROKER_NAME.get(name)
    return inherited_text(topic, kafka) if topic else kafka.get(name)
