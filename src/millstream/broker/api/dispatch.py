"""Takes a request's bytes to its handler, and the handler's answer to a reply in its place.

Decodes the request and checks the caller's permissions. Long work (a long request or reply, a request for many
elements) is done in a thread or in slices, so that other requests are served meanwhile.
"""

from collections.abc import Callable, Coroutine
from struct import Struct
from types import CoroutineType
from typing import TYPE_CHECKING, Any
from uuid import UUID

from millstream.broker.api.call import LATER, NO_REPLY, Call, Occupied
from millstream.broker.api.permissions import AllowAll
from millstream.broker.api.sliced_requests import SlicePlan, is_long, joined, parts_of, without_repeats
from millstream.broker.api.table import TABLE
from millstream.broker.machine import Tasks
from millstream.broker.server.connection import Connection
from millstream.broker.server.listener import TAKEN
from millstream.broker.server.long_work import LongWork
from millstream.broker.server.memory import MemoryBudget
from millstream.observability.broker_metrics import BrokerMetrics
from millstream.observability.logs import get_logger
from millstream.protocol.api import API_VERSIONS, FIND_COORDINATOR, METADATA, NODE_CALL, PEER_APIS
from millstream.protocol.codec import Message
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.limits import TooManyElements, explain_size
from millstream.protocol.wire import MalformedRequest, Reader

if TYPE_CHECKING:
    from millstream.broker.api.served import Collaborators, Served

log = get_logger("millstream.broker")

# API key, version, correlation id, and the length of the client id, which follows.
_HEADER = Struct(">hhih")
_HEADER_BYTES = _HEADER.size
# Memory of a large request while it is handled, for each byte on the wire.
_READ_OVER_SENT = 8
_WHO_LEADS = (METADATA, FIND_COORDINATOR)


async def _ready(answer: Any) -> Any:
    return answer


async def _now(answer: Any) -> Any:
    return await answer if type(answer) is CoroutineType else answer


def _behind_tags(request: memoryview, position: int) -> int:
    """Where the body begins, behind the tagged fields of the header."""
    if position < len(request) and request[position] == 0:
        # Nearly always: there are none.
        return position + 1
    reader = Reader(request, position, flexible=True)
    reader.skip_tags()
    return reader.position


class Dispatcher:
    def __init__(
        self,
        collaborators: "Collaborators",
        metrics: BrokerMetrics,
        clock: Callable[[], float],
        tasks: Tasks,
        long_work: LongWork,
        memory: MemoryBudget,
        authoriser: AllowAll,
        topic_name: Callable[[UUID], str | None],
        is_cut_off: Callable[[], bool],
    ) -> None:
        """`collaborators` gives a handler's collaborators by its API's name. `is_cut_off` says whether other nodes may
        have taken over this node's partitions.
        """
        self.clock = clock
        self.is_open = False
        """Whether clients are served. Other nodes are served earlier, while this one joins the cluster."""
        self._collaborators = collaborators
        self._metrics = metrics
        self._tasks = tasks
        self._long_work = long_work
        self._memory = memory
        self._authoriser = authoriser
        self._topic_name = topic_name
        self._is_cut_off = is_cut_off
        self._served: dict[int, Served] = {}
        for row in TABLE.values():
            metrics.requests.labels(row.api.name)
            metrics.request_duration.labels(row.api.name)

    def dispatch(self, connection: Connection, request: memoryview) -> None:
        """Handle one request; an error concerns this connection only."""
        self._metrics.bytes_in.value += len(request) + 4
        try:
            self._dispatch(connection, request)
        except KafkaError as error:
            connection.refuse(error.message)
        except Exception:
            log.exception("request failed", peer=connection.peer)
            connection.close()

    def _dispatch(self, connection: Connection, request: memoryview) -> None:
        key, version, correlation_id, id_size = _HEADER.unpack_from(request, 0)
        if key not in connection.listener.apis:
            raise MalformedRequest(f"API key {key} is not served here")
        if not self.is_open and (key not in PEER_APIS or key == NODE_CALL):
            # Clients come back when the node has joined its cluster.
            connection.close()
            return
        served = self._served.get(key) or self.served(key)
        api = served.api
        if len(request) > served.largest_bytes:
            raise MalformedRequest(explain_size(api.name, len(request)))
        position = _HEADER_BYTES + id_size if id_size > 0 else _HEADER_BYTES
        if position > len(request) or id_size < -1:
            raise MalformedRequest(f"{id_size} bytes expected for the client id")
        caller = connection.caller(request[_HEADER_BYTES:position])
        call = Call(caller, version, correlation_id, served, connection, self.clock())
        served.count.value += 1
        if not api.min_version <= version <= api.max_version:
            self._refuse_version(call)
            return
        if version >= api.flexible_from:
            position = _behind_tags(request, position)
        relay, read = connection.relay, None
        if relay is not None:
            if relay.is_only_node and self._is_cut_off() and key not in PEER_APIS:
                # The client knows only this node, and looks for another when the connection closes.
                connection.close()
                return
            try:
                read = relay.takes(call, request, position)
                if read is TAKEN:
                    return
            except KafkaError as error:
                self._fail(call, error)
                return
        self.serve(call, request, position, read)
        if key in _WHO_LEADS and self._is_cut_off():
            # Other nodes have newer metadata, but a client asks the node that it is connected to.
            connection.close_when_answered()

    def dispatch_series(self, connection: Connection, key: int, data: memoryview, size: int) -> int:
        """Handle requests at the start of `data` that can be handled together, each of `size` bytes.

        Returns how many were handled; 0 leaves them to `dispatch`.
        """
        if not self.is_open or key not in connection.listener.apis or connection.relay is not None:
            return 0
        served = self._served.get(key) or self.served(key)
        if served.series is None or served.handle_series is None or size > served.largest_bytes:
            return 0
        series = served.series(data, size)
        if series is None:
            return 0
        try:
            caller = connection.caller(series.client_id)
            self._authoriser.check_request(caller, served.needs, series.request, self._topic_name)
            call = Call(caller, series.version, series.numbers[0], served, connection, self.clock())
            taken = served.handle_series(series, call)
        except KafkaError:
            # Nothing was done yet; `dispatch` handles them one by one and returns the errors.
            return 0
        except Exception:
            log.exception("request failed", peer=connection.peer)
            connection.close()
            return 1
        served.count.value += taken
        self._metrics.bytes_in.value += taken * (size + 4)
        return taken

    def served(self, key: int) -> "Served":
        """The API with its handler, which is imported and made for its first request."""
        served = self._served.get(key)
        if served is None:
            from millstream.broker.api.served import Served

            served = Served(TABLE[key], self._metrics, self.clock, self._collaborators)
            self._served[key] = served
        return served

    @staticmethod
    def _refuse_version(call: Call) -> None:
        api, version = call.api, call.version
        if api.key != API_VERSIONS:
            raise MalformedRequest(
                f"{api.name} version {version} is not served; {api.min_version} to {api.max_version} are"
            )
        call.version = 0
        call.reply(ErrorCode.UNSUPPORTED_VERSION)

    def serve(self, call: Call, buffer: memoryview, position: int, read: object = None) -> None:
        """Handle a request whose body begins at `position`; the buffer is reused as soon as this returns.

        `read` is the decoded request, if it was decoded before.
        """
        served = call.served
        if len(buffer) - position > served.large_bytes:
            body = bytes(buffer[position:])
            call.block_later()
            self._await(call, self._answer_large(call, body), len(body) * _READ_OVER_SENT)
            return
        try:
            request = served.decode(buffer, position, call.version) if read is None else read
            self._authoriser.check_request(call.caller, served.needs, request, self._topic_name)
            if served.slices is not None:
                request = without_repeats(served.slices, request)
                if is_long(served.slices, request):
                    self._await(call, self._answer_in_slices(call, served.slices, request))
                    return
            answer = served.handle(request, call)
        except KafkaError as error:
            self._fail(call, error)
            return
        if answer is not LATER:
            self.conclude(call, answer)

    def conclude(self, call: Call, answer: Any) -> None:
        """Reply with what a handler has returned, now or when it is ready."""
        if answer is LATER or answer is NO_REPLY:
            return
        if type(answer) is CoroutineType:
            self._await(call, answer)
        elif call.served.is_cold:
            self._conclude_cold(call, answer)
        else:
            call.reply(answer)

    def _conclude_cold(self, call: Call, answer: Any) -> None:
        if call.served.is_large(call.version, answer):
            self._await(call, _ready(answer))
        else:
            self._note_error(call, answer)
            call.reply(answer)

    def _await(self, call: Call, answer: Coroutine[Any, Any, Any], held_bytes: int = 0) -> None:
        """Reply when the answer is ready.

        Kafka handles one request of a connection at a time; a client may rely on the effect of the previous one.
        """
        call.reply_later()
        occupied = Occupied(call.way, self._memory, held_bytes, is_in_order=call.served.row.is_in_order)
        self._tasks.spawn(self._finish(call, answer, occupied), call.api.name)

    async def _finish(self, call: Call, answer: Coroutine[Any, Any, Any], occupied: Occupied) -> None:
        with occupied:
            try:
                try:
                    found = await answer
                    self._note_error(call, found)
                except KafkaError as error:
                    found = self._failure(call, error)
                if found is NO_REPLY:
                    call.reply_later().complete([])
                elif found is not LATER:
                    call.reply_body(await self._encode_apart(call, found))
            except KafkaError as error:
                call.way.refuse(error.message)
            except Exception:
                log.exception("request failed", peer=call.way.peer, api=call.api.name)
                call.way.close()

    async def _answer_large(self, call: Call, body: bytes) -> Any:
        """Decode and handle a long request; requests of other connections are served meanwhile."""
        served, version = call.served, call.version
        try:
            request = await self._long_work.apart(lambda: served.decode(memoryview(body), 0, version))
            await self._long_work.pause()
            if call.is_abandoned:
                return LATER
            self._authoriser.check_request(call.caller, served.needs, request, self._topic_name)
            if served.slices is not None:
                request = without_repeats(served.slices, request)
                if is_long(served.slices, request):
                    return await self._answer_in_slices(call, served.slices, request)
            answer = served.handle(request, call)
        finally:
            call.unblock_later()
        return await _now(answer)

    async def _answer_in_slices(self, call: Call, plan: SlicePlan, request: Message) -> Any:
        answers = []
        for part in parts_of(plan, request):
            await self._long_work.pause()
            if plan.is_read and call.is_abandoned:
                return LATER
            answers.append(await _now(call.served.handle(part, call)))
        return await self._long_work.apart(lambda: joined(plan, answers))

    async def _encode_apart(self, call: Call, answer: Any) -> list[bytes | memoryview]:
        """Encode an answer, a large one in a thread."""
        served, version, throttle_ms = call.served, call.version, call.throttle_ms
        if not served.is_large(version, answer):
            return served.encode(version, answer, throttle_ms)
        return await self._long_work.apart(lambda: served.encode(version, answer, throttle_ms))

    @staticmethod
    def _note_error(call: Call, answer: Any) -> None:
        code = getattr(answer, "error_code", ErrorCode.NONE)
        if code != ErrorCode.NONE:
            call.count_error(ErrorCode(code))

    def _fail(self, call: Call, error: KafkaError) -> None:
        call.reply(self._failure(call, error))

    @staticmethod
    def _failure(call: Call, error: KafkaError) -> Any:
        """An answer with only the error, if the version has a field for it; otherwise the connection is closed."""
        if isinstance(error, MalformedRequest):
            raise error
        answer = call.served.failure(call.version, error)
        if answer is not None or isinstance(error, TooManyElements):
            call.count_error(error.code)
        if answer is None:
            raise KafkaError(error.code, f"{call.api.name}: {error.message}")
        return answer
