"""What the regular expressions of a KIP-848 group match, found before its heartbeat is decided."""

from collections.abc import Mapping
from contextlib import suppress

from millstream.broker.server.long_work import LongWork
from millstream.coordinator.groups.consumer_group import ConsumerGroup
from millstream.coordinator.groups.regex import find_topics, is_matched, remember
from millstream.coordinator.groups.state import GroupState
from millstream.protocol.errors import KafkaError

# Topics that are matched on the loop; with complicated expressions each takes long.
_MATCHED_AT_ONCE = 200


async def match_topics(
    state: GroupState, group_id: str, pattern: str | None, longest: int, long_work: LongWork
) -> None:
    """Match what is not known yet, in a thread if it is much; the decision finds what is remembered."""
    group = state.groups.get(group_id)
    patterns = {*(group.regexes if isinstance(group, ConsumerGroup) else ()), pattern or ""} - {""}
    if not patterns:
        return
    names = state.topics.topics
    missing = [each for each in patterns if len(each) <= longest and not is_matched(each, names)]
    if len(names) * len(missing) > _MATCHED_AT_ONCE:
        for each, found in (await long_work.apart(lambda: _match(missing, names))).items():
            remember(each, names, found)


def _match(patterns: list[str], names: Mapping[str, object]) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for pattern in patterns:
        # One that is no expression is refused when the request is decided.
        with suppress(KafkaError):
            found[pattern] = find_topics(pattern, names)
    return found
