"""Reads the log without a queue: records of a partition from an offset on, without locks."""

from millstream.doors import Caller, PartitionAccess, Place, QuotaKind
from millstream.gateway.bodies import FRAMES
from millstream.gateway.events import as_frame, as_json
from millstream.gateway.places import MessageId
from millstream.gateway.problems import HttpQuotas, problem_of
from millstream.gateway.queries import query_of, whole_number
from millstream.gateway.topics import Topics
from millstream.http.messages import Problem, Request, Response, json_response
from millstream.protocol.errors import KafkaError
from millstream.protocol.records import Record

_MAX_RECORDS = 1_000
_MAX_BYTES = 1 << 20
_MAX_WAIT_S = 30
_NAMED = ("earliest", "latest")


class Reading:
    def __init__(self, partitions: PartitionAccess, topics: Topics, quotas: HttpQuotas) -> None:
        self._partitions = partitions
        self._topics = topics
        self._quotas = quotas

    async def handle(self, request: Request, caller: Caller) -> Response:
        query, index = query_of(request), request.params["partition"]
        topic = self._topics.known(request.params["topic"])
        if topic is None:
            raise Problem(404, "unknown topic")
        if (
            not (index.isascii() and index.isdigit())
            or len(index) > 10
            or int(index) >= len(topic.partitions)
        ):
            raise Problem(404, "invalid partition")
        place = Place(topic.name, int(index))
        limit = whole_number(query, "limit", 100, least=1, most=_MAX_RECORDS)
        wait_s = whole_number(query, "wait", 0, most=_MAX_WAIT_S)
        self._quotas.check(caller, QuotaKind.FETCH)
        try:
            offset = await self._offset(caller, place, query.get("offset", "earliest") or "earliest")
            read = await self._partitions.read(caller, place, offset, max_bytes=_MAX_BYTES, max_wait_s=wait_s)
        except KafkaError as error:
            raise problem_of(error) from error
        records: list[Record] = []
        next_offset = read.next_offset
        for record in read.records(await read.open()):
            if len(records) == limit:
                next_offset = record.offset
                break
            records.append(record)
        self._quotas.charge(caller, QuotaKind.FETCH, sum(len(each.value or b"") for each in records))
        if FRAMES in request.header("accept"):
            body = b"".join(as_frame(MessageId(place, each.offset), each, None) for each in records)
            return Response(body, content_type=FRAMES, headers={"x-next-offset": str(next_offset)})
        return json_response(
            {
                "topic": place.topic,
                "partition": place.partition,
                "records": [
                    as_json(str(MessageId(place, each.offset)), place.topic, place.partition, each, None)
                    for each in records
                ],
                "next_offset": next_offset,
                "high_watermark": read.high_watermark,
                "log_start_offset": read.log_start_offset,
            }
        )

    async def _offset(self, caller: Caller, place: Place, text: str) -> int:
        if text in _NAMED:
            offsets = await self._partitions.offsets(caller, place)
            return offsets.earliest if text == "earliest" else offsets.latest
        if not (text.isascii() and text.isdigit()) or len(text) > 18:
            raise Problem(400, "offset must be a whole number, earliest or latest")
        return int(text)
