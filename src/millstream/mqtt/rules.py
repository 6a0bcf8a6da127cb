"""Maps MQTT topics to the log's topics and back. The first matching rule of the settings applies.

A rule in the settings: `sensors/{site}/# -> sensors key={site} partition={site} header.site={site}`.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from millstream.config.errors import ConfigError
from millstream.config.mqtt_settings import MqttSettings
from millstream.mqtt.templates import TOPIC, Pattern, Template, TemplateError
from millstream.protocol.key_hash import murmur2
from millstream.protocol.mqtt.topics import is_name, matches, overlaps
from millstream.protocol.records import Headers

DEFAULT_TOPIC: Final = "mqtt"
_KEPT_ROUTES: Final = 8_192
_LONGEST_KEPT: Final = 512
_POSITIVE: Final = 0x7FFFFFFF
_HEADER: Final = "header."


class Route(msgspec.Struct, frozen=True, gc=False):
    """Where a message goes. `partition_number` counts modulo the partitions that the topic has."""

    topic: str
    key: bytes
    partition_number: int
    headers: Headers
    names_topic: bool
    """Whether the key alone gives the MQTT topic, so that no header is needed."""


class Rule:
    """`filter` to `topic`; key, partition and headers are templates of the filter's levels."""

    def __init__(
        self,
        filter: str,  # noqa: A002 - as it is called in the settings
        topic: str,
        key: str = "{topic}",
        partition: str | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._pattern = Pattern(filter)
        self.topic = topic
        self.filter = self._pattern.filter
        self._key = Template(key, self._pattern)
        self._partition = None if partition is None else Template(partition, self._pattern)
        self._headers = [(name, Template(text, self._pattern)) for name, text in headers]

    def route(self, topic: str) -> Route | None:
        """None if the rule does not match the topic."""
        values = self._pattern.match(topic)
        if values is None:
            return None
        key = self._key.fill(values).encode()
        headers = tuple((name, template.fill(values).encode()) for name, template in self._headers)
        return Route(self.topic, key, self._number(key, values), headers, self._key.text == "{topic}")

    def _number(self, key: bytes, values: dict[str, str]) -> int:
        """The rule's own partition number if it has one; else chosen by key as Kafka's clients do."""
        if self._partition is None:
            return murmur2(key) & _POSITIVE
        text = self._partition.fill(values)
        return (
            int(text)
            if text.isascii() and text.isdigit() and len(text) < 10
            else murmur2(text.encode()) & _POSITIVE
        )

    def mqtt_topic(self, key: str) -> str | None:
        """The MQTT topic of a record that no MQTT client wrote, from its key; None if the key does not give it."""
        values = self._key.read(key)
        if values is None:
            return None
        topic = values[TOPIC] if TOPIC in values else self._pattern.topic_of(values)
        return topic if topic is not None and is_name(topic) and self._pattern.match(topic) else None


class Rules:
    """All rules. A topic that no rule matches goes to `default_topic`, with the MQTT topic as the key."""

    def __init__(self, rules: Sequence[Rule] = (), default_topic: str = DEFAULT_TOPIC) -> None:
        self._rules = tuple(rules)
        self._default_topic = default_topic
        self._routes: dict[str, Route] = {}

    @property
    def topics(self) -> list[str]:
        """All topics of the log that may hold messages."""
        return list(dict.fromkeys((*(rule.topic for rule in self._rules), self._default_topic)))

    def route(self, topic: str) -> Route:
        found = self._routes.get(topic)
        return self._find(topic) if found is None else found

    def _find(self, topic: str) -> Route:
        for rule in self._rules:
            if (route := rule.route(topic)) is not None:
                break
        else:
            key = topic.encode()
            route = Route(self._default_topic, key, murmur2(key) & _POSITIVE, (), True)
        if len(topic) <= _LONGEST_KEPT:
            if len(self._routes) >= _KEPT_ROUTES:
                self._routes.clear()
            self._routes[topic] = route
        return route

    def mqtt_topic(self, topic: str, key: bytes | None) -> str:
        """The MQTT topic of a record without a header for it: by the rules, else the name of the log's topic."""
        if key:
            try:
                text = key.decode()
            except UnicodeDecodeError:
                return topic
            for rule in self._rules:
                if rule.topic == topic and "\0" not in text and (found := rule.mqtt_topic(text)) is not None:
                    return found
            if topic == self._default_topic and "\0" not in text and is_name(text):
                return text
        return topic

    def topics_for(self, text: str) -> list[str]:
        """The topics of the log that may hold messages for this filter."""
        wanted = (rule.topic for rule in self._rules if overlaps(rule.filter, text))
        # A record without an MQTT topic has the name of its log's topic.
        own = (rule.topic for rule in self._rules if matches(text, rule.topic))
        return list(dict.fromkeys((*wanted, *own, self._default_topic)))


def rules_of(settings: MqttSettings) -> Rules:
    """ConfigError for an invalid rule."""
    rules = []
    for text in settings.rules:
        try:
            rules.append(_rule(text))
        except TemplateError as error:
            raise ConfigError("mqtt.rules", f"{text!r}: {error}") from None
    return Rules(rules, settings.default_topic)


def _rule(text: str) -> Rule:
    pattern, arrow, rest = text.partition("->")
    topic, *options = rest.split() or [""]
    if not arrow or not topic:
        raise TemplateError("a rule is FILTER -> TOPIC, then key=, partition= and header.NAME=")
    given: dict[str, str] = {}
    headers: list[tuple[str, str]] = []
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or name in given:
            raise TemplateError(
                f"{option!r} is malformed or repeated; the options are key=, partition= and header.NAME="
            )
        if name.startswith(_HEADER):
            headers.append((name.removeprefix(_HEADER), value))
        elif name in ("key", "partition"):
            given[name] = value
        else:
            raise TemplateError(f"{name!r} is not an option: key=, partition= and header.NAME= are")
    return Rule(pattern.strip(), topic, given.get("key", "{topic}"), given.get("partition"), headers)
