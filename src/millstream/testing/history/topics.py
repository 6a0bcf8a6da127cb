"""Creating and deleting topics is linearizable for each name: the controller decides one after the other."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from millstream.testing.history.linearizable import Call, is_linearizable
from millstream.testing.history.operations import Anomaly, Kind


class TopicRequest(StrEnum):
    CREATE = "create"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class TopicCall:
    """`was_there`: whether the topic existed before the request, by the answer; None without an answer."""

    topic: str
    request: TopicRequest
    was_there: bool | None
    start: float
    end: float


def judge_topics(calls: Iterable[TopicCall]) -> list[Anomaly]:
    by_topic: dict[str, list[Call[TopicRequest, bool]]] = {}
    for call in calls:
        by_topic.setdefault(call.topic, []).append(Call(call.request, call.was_there, call.start, call.end))
    return [
        Anomaly(Kind.NOT_LINEARIZABLE, topic, f"no order explains these answers: {_describe(of_topic)}")
        for topic, of_topic in by_topic.items()
        if not is_linearizable(of_topic, False, _step)
    ]


def _step(is_there: bool, request: TopicRequest) -> tuple[bool, bool]:
    return request is TopicRequest.CREATE, is_there


def _describe(calls: list[Call[TopicRequest, bool]]) -> str:
    words = {True: "there already", False: "not there", None: "unknown"}
    return "; ".join(
        f"{call.request} {call.start:.3f} to {call.end:.3f}: {words[call.answer]}"
        for call in sorted(calls, key=lambda call: call.start)
    )
