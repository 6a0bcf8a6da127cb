"""Topic names and filters: validation, matching, and `$share/{group}/{filter}`."""

from typing import Final, NamedTuple

from millstream.protocol.mqtt.reasons import Reason, Violation, malformed

# Each level takes a tree node, so a name of 65,535 slashes would take megabytes.
MOST_LEVELS: Final = 128

SHARE_PREFIX: Final = "$share/"


class SharedFilter(NamedTuple):
    group: str
    filter: str


def is_name(topic: str) -> bool:
    """Whether it can be published to."""
    return bool(topic) and "+" not in topic and "#" not in topic and topic.count("/") < MOST_LEVELS


def check_name(topic: str) -> str:
    if has_wildcards(topic):
        raise malformed("a topic name has a wildcard")
    if not is_name(topic):
        raise Violation(Reason.TOPIC_NAME_INVALID, "a topic name is empty or has too many levels")
    return topic


def is_filter(text: str) -> bool:
    """Whether it can be subscribed to; wildcards stand for whole levels, `#` for the last ones."""
    if not text or text.count("/") >= MOST_LEVELS:
        return False
    if "+" not in text and "#" not in text:
        return True
    levels = text.split("/")
    last = len(levels) - 1
    return all(
        ("+" not in level or level == "+") and ("#" not in level or (level == "#" and place == last))
        for place, level in enumerate(levels)
    )


def has_wildcards(text: str) -> bool:
    return "+" in text or "#" in text


def shared(text: str) -> SharedFilter | None:
    """Group and filter of a shared subscription; None for an ordinary one. ValueError for a broken one."""
    if not text.startswith(SHARE_PREFIX) and text != SHARE_PREFIX[:-1]:
        return None
    group, slash, inner = text[len(SHARE_PREFIX) :].partition("/")
    if not group or not slash or has_wildcards(group) or not is_filter(inner):
        raise ValueError("a shared subscription is $share/{group}/{filter}, the group without wildcards")
    return SharedFilter(group, inner)


def matches(text: str, topic: str) -> bool:
    """Whether a valid filter matches a valid name; for many filters use a `TopicTree`."""
    if topic.startswith("$") and text[0] in "+#":
        return False
    wanted, levels = text.split("/"), topic.split("/")
    for place, level in enumerate(wanted):
        if level == "#":
            return True
        if place >= len(levels) or level not in ("+", levels[place]):
            return False
    return len(wanted) == len(levels)


def overlaps(first: str, second: str) -> bool:
    """Whether some name may match both filters."""
    if (first[0] == "$" and second[0] in "+#") or (second[0] == "$" and first[0] in "+#"):
        return False
    ones, others = first.split("/"), second.split("/")
    for one, other in zip(ones, others, strict=False):
        if one == "#" or other == "#":
            return True
        if one != other and one != "+" and other != "+":
            return False
    if len(ones) == len(others):
        return True
    longer = ones if len(ones) > len(others) else others
    # `a/#` matches `a` too.
    return longer[min(len(ones), len(others))] == "#"
