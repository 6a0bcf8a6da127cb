"""Error answers: the contract's texts, and the cluster's errors mapped to HTTP.

A problem is plain text, which existing clients expect, or JSON for clients that accept it. A caller that has used up
its quota gets 429 until its time is over: a broker would delay the request, but over HTTP the next one is refused.
"""

import math
from collections.abc import Callable, Mapping

from millstream.doors import Caller, QuotaKind, Quotas
from millstream.http.messages import TEXT, Problem, Request, Response
from millstream.protocol.errors import ErrorCode, KafkaError

NO_BROKERS = "no healthy brokers available"
UNAVAILABLE = "broker unavailable"
UNKNOWN_TOPIC = "unknown topic"
ACK_FAILED = "ack failed (unknown id or wrong group)"

_RETRY = {"retry-after": "1"}
_STATUS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (400, UNKNOWN_TOPIC),
    ErrorCode.INVALID_TOPIC_EXCEPTION: (400, UNKNOWN_TOPIC),
    ErrorCode.OFFSET_OUT_OF_RANGE: (416, "the log does not have this offset"),
    ErrorCode.MESSAGE_TOO_LARGE: (413, "the message is larger than its topic allows"),
    ErrorCode.RECORD_LIST_TOO_LARGE: (413, "the message is larger than its topic allows"),
    ErrorCode.REQUEST_TIMED_OUT: (502, UNAVAILABLE),
    ErrorCode.NETWORK_EXCEPTION: (502, UNAVAILABLE),
    ErrorCode.BROKER_NOT_AVAILABLE: (502, UNAVAILABLE),
    ErrorCode.KAFKA_STORAGE_ERROR: (502, UNAVAILABLE),
    ErrorCode.LEADER_NOT_AVAILABLE: (503, NO_BROKERS),
    ErrorCode.NOT_LEADER_OR_FOLLOWER: (503, NO_BROKERS),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: (503, NO_BROKERS),
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: (503, NO_BROKERS),
    ErrorCode.NOT_COORDINATOR: (503, NO_BROKERS),
    ErrorCode.NOT_ENOUGH_REPLICAS: (503, "not enough replicas are in sync"),
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (502, UNAVAILABLE),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (403, "not allowed on this topic"),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (403, "not allowed in this group"),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (403, "not allowed"),
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: (429, "over the quota"),
    ErrorCode.TOPIC_ALREADY_EXISTS: (409, "the topic exists already"),
    ErrorCode.GROUP_ID_NOT_FOUND: (404, "unknown group"),
    ErrorCode.NON_EMPTY_GROUP: (409, "the group has members"),
    ErrorCode.UNKNOWN_SERVER_ERROR: (500, "the request failed inside the node; its log has the reason"),
}

OF_THE_BROKER = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION, ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR,
    }
)  # fmt: skip
"""Errors caused by the broker and not by the request."""


def problem_of(error: KafkaError) -> Problem:
    status, text = _STATUS.get(error.code, (400, str(error)))
    return Problem(status, text, _RETRY if status in {429, 503} else {})


def busy(text: str, retry_after_s: int = 1) -> Problem:
    return Problem(503, text, {"retry-after": str(retry_after_s)})


def rendered(problem: Problem, request: Request, extra: Mapping[str, object] | None = None) -> Response:
    if extra or "json" in request.header("accept"):
        from millstream.http.messages import json_response

        return json_response({"error": str(problem), **(extra or {})}, problem.status, problem.headers)
    return Response(str(problem).encode(), problem.status, TEXT, problem.headers)


_MAX_WAITING = 10_000


class HttpQuotas:
    def __init__(self, quotas: Quotas, now: Callable[[], float]) -> None:
        self._quotas = quotas
        self._now = now
        self._until: dict[tuple[str, str, QuotaKind], float] = {}

    def check(self, caller: Caller, kind: QuotaKind) -> None:
        until = self._until.get((str(caller.principal), caller.client_id, kind)) if self._until else None
        if until is not None:
            left = until - self._now()
            if left > 0:
                raise Problem(429, "over the quota", {"retry-after": str(math.ceil(left))})
            del self._until[str(caller.principal), caller.client_id, kind]

    def charge(self, caller: Caller, kind: QuotaKind, amount: float) -> None:
        wait_s = self._quotas.charge(caller, kind, amount)
        if wait_s > 0:
            if len(self._until) >= _MAX_WAITING:
                now = self._now()
                self._until = {who: until for who, until in self._until.items() if until > now}
            self._until[str(caller.principal), caller.client_id, kind] = self._now() + wait_s
