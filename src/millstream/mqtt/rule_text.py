"""A rule as it stands in the settings: `sensors/{site}/# -> sensors key={site} partition={site} header.site={site}`."""

from millstream.config.errors import ConfigError
from millstream.config.mqtt_settings import MqttSettings
from millstream.mqtt.rules import Rule, Rules
from millstream.mqtt.templates import TemplateError

_HEADER = "header."


def rules_of(settings: MqttSettings) -> Rules:
    """ConfigError for one that cannot be meant."""
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
                f"{option!r} is not an option that can be had here: key=, partition=, header.NAME="
            )
        if name.startswith(_HEADER):
            headers.append((name.removeprefix(_HEADER), value))
        elif name in ("key", "partition"):
            given[name] = value
        else:
            raise TemplateError(f"{name!r} is not an option: key=, partition= and header.NAME= are")
    return Rule(pattern.strip(), topic, given.get("key", "{topic}"), given.get("partition"), headers)
