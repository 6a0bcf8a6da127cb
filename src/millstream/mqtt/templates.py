"""Topic patterns with named levels, and text templates that use those names.

sensors/{site}/{device}/#     each placeholder stands for one level, `#` for the rest, named {rest}
sensors/+/temp                `+` is named by its number: {1}
{site}.{device}               a template; {topic} is the whole topic
"""

import re
from collections.abc import Mapping
from typing import Final

from millstream.protocol.mqtt.topics import is_filter

_PLACEHOLDER: Final = re.compile(r"\{([^{}/]*)\}")
_NAME: Final = re.compile(r"[A-Za-z0-9_]+")
REST: Final = "rest"
TOPIC: Final = "topic"


class TemplateError(ValueError):
    """An invalid pattern or template; the message says why."""


class Pattern:
    """A topic filter whose wildcards have names."""

    def __init__(self, text: str) -> None:
        self.names: list[str] = []
        levels: list[str] = []
        regex: list[str] = []
        for level in text.split("/"):
            name = self._name(level)
            levels.append("#" if level == "#" else "+" if name else level)
            regex.append(f"(?P<_{name}>[^/]*)" if name and level != "#" else re.escape(level))
        self.filter = "/".join(levels)
        if not is_filter(self.filter):
            raise TemplateError(
                f"{text!r} is not a topic filter: + and {{name}} stand for one level, # for the last"
            )
        self._levels = text.split("/")
        if levels[-1] == "#":
            regex.pop()
            # `a/#` matches `a` too.
            deeper = f"(?:/(?P<_{REST}>.*))?" if regex else f"(?P<_{REST}>.*)"
            self._regex = re.compile("/".join(regex) + deeper, re.DOTALL)
        else:
            self._regex = re.compile("/".join(regex), re.DOTALL)

    def _name(self, level: str) -> str:
        """The name of a wildcard level; empty for a literal level."""
        if level == "#":
            name = REST
        elif level == "+":
            name = str(1 + sum(1 for each in self.names if each.isdigit()))
        elif (found := _PLACEHOLDER.fullmatch(level)) is not None:
            name = found[1]
            if not _NAME.fullmatch(name) or name in (TOPIC, REST):
                raise TemplateError(f"{{{name}}} cannot be the name of a level: use letters, digits and _")
        else:
            if "{" in level or "}" in level:
                raise TemplateError(f"{level!r}: a placeholder stands for a whole level")
            return ""
        if name in self.names:
            raise TemplateError(f"{{{name}}} is there twice")
        self.names.append(name)
        return name

    def match(self, topic: str) -> dict[str, str] | None:
        """The topic's levels by name; None if it does not match."""
        if topic.startswith("$") and self.filter[0] in "+#":
            return None
        found = self._regex.fullmatch(topic)
        if found is None:
            return None
        return {TOPIC: topic} | {name: found[f"_{name}"] or "" for name in self.names}

    def topic_of(self, values: Mapping[str, str]) -> str | None:
        """The topic with these values; None if one is missing or spans several levels."""
        levels: list[str] = []
        names = iter(self.names)
        for level in self._levels:
            if level != "+" and level != "#" and not level.startswith("{"):
                levels.append(level)
                continue
            value = values.get(next(names))
            if level == "#":
                if value:
                    levels.append(value)
            elif value is None or "/" in value:
                return None
            else:
                levels.append(value)
        return "/".join(levels)


class Template:
    """A text whose placeholders name levels of `pattern`."""

    def __init__(self, text: str, pattern: Pattern) -> None:
        self.text = text
        known = {TOPIC, *pattern.names}
        regex, at = "", 0
        self._parts: list[tuple[str, str]] = []
        self.names: list[str] = []
        for found in _PLACEHOLDER.finditer(text):
            name = found[1]
            if name not in known:
                raise TemplateError(f"{text!r} has {{{name}}}; the filter names {', '.join(sorted(known))}")
            before = text[at : found.start()]
            self._parts.append((before, name))
            regex += re.escape(before)
            regex += f"(?P=_{name})" if name in self.names else f"(?P<_{name}>.*?)"
            self.names.append(name)
            at = found.end()
        self._end = text[at:]
        if "{" in self._end or "}" in self._end:
            raise TemplateError(f"{text!r} has a brace without its partner")
        self._regex = re.compile(regex + re.escape(self._end), re.DOTALL)

    def fill(self, values: Mapping[str, str]) -> str:
        return "".join(before + values[name] for before, name in self._parts) + self._end

    def read(self, text: str) -> dict[str, str] | None:
        """The values of the placeholders in the text; None if it does not match."""
        found = self._regex.fullmatch(text)
        return None if found is None else {name: found[f"_{name}"] for name in self.names}
