"""/ack, /nack and /reject: a consumer settles messages that it has, through any gateway.

Acknowledgements of concurrent requests for one partition are sent together.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from millstream.doors import Caller, Place, Queues, Settled, Settlement, SettlementKind
from millstream.doors.queues import MAX_REASON
from millstream.gateway.consume import check_group
from millstream.gateway.hubs import Hubs
from millstream.gateway.metrics import GatewayMetrics
from millstream.gateway.places import BadId, MessageId, parse_id
from millstream.gateway.problems import ACK_FAILED, busy, problem_of, rendered
from millstream.gateway.queries import partition_in, query_of
from millstream.http.messages import TEXT, Problem, Request, Response
from millstream.protocol.errors import ErrorCode, KafkaError

_OK = Response(b"ok", content_type=TEXT)
_MAX_IDS = 1_000
_MAX_DELAY_MS = 86_400_000
_NOT_THE_MEMBERS = frozenset({ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST})


class _Body(msgspec.Struct):
    id: str = ""
    ids: list[str] = []
    delay_ms: int = 0
    reason: str = ""


_decoder = msgspec.json.Decoder(_Body | list[str])


class _Key(msgspec.Struct, frozen=True):
    principal: str
    group: str
    member: str
    place: Place


class _Pending(msgspec.Struct):
    caller: Caller
    settlements: list[Settlement]
    outcomes: list["asyncio.Future[Settled]"]


class _Outcome(msgspec.Struct, frozen=True):
    """The settled messages, and a node's error if there was one. Without an error, the others are not the member's."""

    done: Sequence[MessageId] = ()
    error: KafkaError | None = None


class Acknowledgements:
    def __init__(self, queues: Queues, hubs: Hubs, metrics: GatewayMetrics, *, is_legacy: bool) -> None:
        self._queues = queues
        self._hubs = hubs
        self._metrics = metrics
        self._is_legacy = is_legacy
        self._pending: dict[_Key, _Pending] = {}
        self._flushing: dict[_Key, asyncio.Task[None]] = {}

    async def handle(self, request: Request, caller: Caller, kind: SettlementKind) -> Response:
        query = query_of(request)
        group = query.get("group", "")
        if self._is_legacy and not (query.get("topic") and query.get("partition") and group):
            raise Problem(400, "topic, partition and group required")
        check_group(group)
        partition = partition_in(query, "bad partition" if self._is_legacy else "invalid partition")
        body = _read(request.body)
        ids = body.ids or [body.id]
        template = Settlement(0, 0, kind, delay_ms=body.delay_ms, reason=body.reason)
        found = [_parsed(each, query.get("topic"), partition) for each in ids]
        runs = _runs(found)
        settled = await asyncio.gather(*(self._settle(caller, group, run, template) for run in runs))
        done = {each for outcome in settled for each in outcome.done}
        outcomes = [each in done for each in found]
        # A node's error takes precedence over refused ids: it may be temporary, and the call can be retried.
        error = next((outcome.error for outcome in settled if outcome.error is not None), None)
        status = "ok" if all(outcomes) else "refused" if error is None else "failed"
        self._metrics.settled.labels(kind.name.lower(), status).value += len(ids)
        if status == "ok":
            return _OK
        failed = [each for each, is_done in zip(ids, outcomes, strict=True) if not is_done]
        problem = Problem(400, ACK_FAILED) if error is None else _problem_of(error)
        return rendered(problem, request, {"failed": failed} if body.ids else None)

    async def _settle(
        self, caller: Caller, group: str, run: Sequence[MessageId], template: Settlement
    ) -> _Outcome:
        """Settle a run as a whole; if that is refused, each of its messages by itself."""
        settlement = msgspec.structs.replace(
            template,
            first_offset=run[0].offset,
            last_offset=run[-1].offset,
            incarnation=run[0].incarnation,
        )
        try:
            settled = await self._join(caller, group, run[0], settlement)
        except KafkaError as error:
            return _Outcome(error=None if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else error)
        if settled.error is ErrorCode.NONE:
            for each in run:
                self._hubs.settled(caller, group, each)
            return _Outcome(run)
        if settled.error not in _NOT_THE_MEMBERS:
            return _Outcome(error=KafkaError(settled.error, settled.message))
        if len(run) == 1:
            return _Outcome()
        alone = await asyncio.gather(*(self._settle(caller, group, [each], template) for each in run))
        errors = (outcome.error for outcome in alone if outcome.error is not None)
        return _Outcome([each for outcome in alone for each in outcome.done], next(errors, None))

    def _join(
        self, caller: Caller, group: str, message_id: MessageId, settlement: Settlement
    ) -> "asyncio.Future[Settled]":
        """Join the next request of the same member and partition."""
        key = _Key(str(caller.principal), group, message_id.member, message_id.place)
        pending = self._pending.get(key)
        if pending is None:
            pending = self._pending[key] = _Pending(caller, [], [])
        outcome: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        pending.settlements.append(settlement)
        pending.outcomes.append(outcome)
        if key not in self._flushing:
            self._flushing[key] = asyncio.get_running_loop().create_task(self._flush(key))
        return outcome

    async def _flush(self, key: _Key) -> None:
        """Send one request at a time: settlements that arrive meanwhile go with the next."""
        try:
            while (pending := self._pending.pop(key, None)) is not None:
                await self._send(key, pending)
        finally:
            del self._flushing[key]

    async def _send(self, key: _Key, pending: _Pending) -> None:
        results: Sequence[Settled | KafkaError]
        try:
            results = await self._queues.settle(
                pending.caller, key.group, key.member, key.place, pending.settlements
            )
        except KafkaError as error:
            results = [error] * len(pending.outcomes)
        for outcome, result in zip(pending.outcomes, results, strict=True):
            if outcome.done():
                continue
            if isinstance(result, KafkaError):
                outcome.set_exception(result)
            else:
                outcome.set_result(result)


def _problem_of(error: KafkaError) -> Problem:
    """A node's error as a problem. If the settlement was not stored, the message may be delivered again."""
    problem = problem_of(error)
    if problem.status < 500:
        return problem
    return busy(f"not settled, the message may come again: {error.message or problem}")


def _read(body: bytes) -> _Body:
    """`{"id": "..."}`, `{"ids": [...]}` or a list of ids."""
    try:
        found: _Body | list[str] = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Problem(400, "bad body") from None
    if isinstance(found, list):
        found = _Body(ids=found)
    if not (found.id or found.ids) or (found.id and found.ids):
        raise Problem(400, "bad body")
    if len(found.ids) > _MAX_IDS:
        raise Problem(400, f"bad body: at most {_MAX_IDS} ids")
    if not 0 <= found.delay_ms <= _MAX_DELAY_MS:
        raise Problem(400, f"bad body: delay_ms is from 0 to {_MAX_DELAY_MS}")
    if len(found.reason) > MAX_REASON:
        raise Problem(400, f"bad body: a reason has at most {MAX_REASON} characters")
    return found


def _parsed(text: str, topic: str | None, partition: int | None) -> MessageId | None:
    """None if the id is not of a delivery, or not of the given topic and partition."""
    try:
        found = parse_id(text)
    except BadId:
        return None
    place = found.place
    if not found.member or (topic and topic != place.topic) or partition not in {None, place.partition}:
        return None
    return found


def _order(found: MessageId) -> tuple[str, Place, int, int]:
    return found.member, found.place, found.incarnation, found.offset


def _runs(ids: Sequence[MessageId | None]) -> list[list[MessageId]]:
    """Groups of neighbours in a partition, without duplicates: settling a run costs little more than one message."""
    runs: list[list[MessageId]] = []
    wanted = {each for each in ids if each is not None}
    for each in sorted(wanted, key=_order):
        last = runs[-1][-1] if runs else None
        if last is not None and (*_order(last)[:-1], last.offset + 1) == _order(each):
            runs[-1].append(each)
        else:
            runs.append([each])
    return runs
