"""From a request's bytes to its handler, and from the handler's answer to a reply in its place."""

import asyncio
import importlib
import inspect
from collections.abc import Callable, Coroutine
from struct import Struct
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.broker.api.sliced_requests import PLANS, SlicePlan, is_long, joined, parts_of
from millstream.broker.server.addresses import ShownNode
from millstream.broker.server.connection import Connection, PendingReply, Reply
from millstream.broker.server.long_work import LARGE_REPLY_ELEMENTS, LARGE_REQUEST_BYTES
from millstream.observability.logs import get_logger
from millstream.observability.metrics import Counter, Histogram
from millstream.protocol.api import API_VERSIONS, APIS, FIND_COORDINATOR, METADATA, PEER_APIS, Api
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.kio_loader import import_kio
from millstream.protocol.limits import LIMITS, TooManyElements, explain_size
from millstream.protocol.wire import I32, MalformedRequest, Reader

if TYPE_CHECKING:
    from millstream.broker.node import Broker

log = get_logger("millstream.broker")

# API key, version, correlation id.
_HEADER = Struct(">hhi")
_WITHOUT_KIO = (
    "produce", "fetch", "metadata", "api_versions", "offset_commit",
    "peer_hello", "peer_quorum", "peer_command", "peer_client", "peer_founding", "node_call", "log_checksum",
)  # fmt: skip
# Memory of a large request while it is dealt with, for each byte of it on the wire.
_READ_OVER_SENT = 8
_ALL_APIS = {**APIS, **PEER_APIS}
_WHO_LEADS = (METADATA, FIND_COORDINATOR)


class RequestContext(msgspec.Struct):
    """One request: who sent it, in which version, and the way back."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    connection: Connection
    started: float
    duration: Histogram
    clock: Callable[[], float]

    def reply(self, body: Reply) -> None:
        self.duration.observe(self.clock() - self.started)
        self.connection.send(self.framed(body))

    def reply_later(self) -> "LaterReply":
        return LaterReply(self, self.connection.expect_reply())

    def framed(self, body: Reply) -> Reply:
        flexible = self.api.key != API_VERSIONS and self.api.is_flexible(self.version)
        size = 4 + flexible + sum(map(len, body))
        head = I32.pack(size) + I32.pack(self.correlation_id) + (b"\0" if flexible else b"")
        if size < 4096:
            return [b"".join((head, *body))]
        return [head, *body]

    @property
    def local_host(self) -> str:
        return self.connection.local_host

    @property
    def peer(self) -> str:
        return self.connection.peer

    @property
    def only_node(self) -> ShownNode | None:
        relay = self.connection.relay
        return None if relay is None else relay.shown


class LaterReply(msgspec.Struct):
    """The place of a reply that waits; filled once."""

    context: RequestContext
    _pending: PendingReply

    def may_be_cut_short(self, *, abandoned: Callable[[], object], hurried: Callable[[], object]) -> None:
        """What to call when the client is gone before the reply is ready, and when too much waits behind it."""
        self._pending.abandoned = abandoned
        self._pending.hurried = hurried

    def complete(self, body: Reply) -> None:
        context = self.context
        context.duration.observe(context.clock() - context.started)
        self._pending.complete(context.framed(body))


def is_large(api: Api, version: int, response: Any) -> bool:
    """Whether writing the reply would take others' time."""
    from millstream.protocol.codec import count_elements

    return count_elements(api, version, response, LARGE_REPLY_ELEMENTS) > LARGE_REPLY_ELEMENTS


async def _ready(answer: Any) -> Any:
    return answer


def load_handler(name: str) -> ModuleType:
    if name not in _WITHOUT_KIO:
        import_kio()
    return importlib.import_module(f"millstream.broker.handlers.{name}")


class Dispatcher:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.clock = broker.clock.monotonic
        self._modules: dict[int, ModuleType] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        metrics = broker.metrics
        self._counts: dict[int, Counter] = {
            key: metrics.requests.labels(api.name) for key, api in _ALL_APIS.items()
        }
        self._durations: dict[int, Histogram] = {
            key: metrics.request_duration.labels(api.name) for key, api in _ALL_APIS.items()
        }

    def dispatch(self, connection: Connection, request: memoryview) -> None:
        """Handle one request; whatever goes wrong concerns this connection only."""
        self._broker.metrics.bytes_in.value += len(request) + 4
        try:
            self._dispatch(connection, request)
        except KafkaError as error:
            connection.refuse(error.message)
        except Exception:
            log.exception("request failed", peer=connection.peer)
            connection.close()

    def _dispatch(self, connection: Connection, request: memoryview) -> None:
        key, version, correlation_id = _HEADER.unpack_from(request, 0)
        api = _ALL_APIS.get(key)
        if api is None:
            raise MalformedRequest(f"API key {key} is not served here")
        if not self._broker.is_serving and key not in PEER_APIS:
            # Other nodes find this one before it has found its place; clients come back when it has.
            connection.close()
            return
        if len(request) > LIMITS[api.name].size_bytes:
            raise MalformedRequest(explain_size(api.name, len(request)))
        reader = Reader(request, _HEADER.size)
        client_id = reader.nullable_string()
        context = RequestContext(
            api,
            version,
            correlation_id,
            client_id,
            connection,
            self.clock(),
            self._durations[key],
            self.clock,
        )
        self._counts[key].value += 1
        if not api.min_version <= version <= api.max_version:
            if key != API_VERSIONS:
                raise MalformedRequest(
                    f"{api.name} version {version} is not served; {api.min_version} to {api.max_version} are"
                )
            context.version = 0
            self._module(api).refuse_version(self._broker, context)
            return
        if api.is_flexible(version):
            reader.flexible = True
            reader.skip_tags()
        module = self._modules.get(key) or self._module(api)
        try:
            relay = connection.relay
            if relay is not None:
                if self._broker.partitions.is_cut_off and key not in PEER_APIS:
                    # The client knows of this node alone, and looks for another only when it has nothing to say.
                    connection.close()
                    return
                if relay.takes(context, request, reader.position):
                    return
            if hasattr(module, "serve"):
                module.serve(self._broker, context, request, reader.position)
            else:
                self._handle(module, context, request[reader.position :])
        except TooManyElements as error:
            self.refuse_too_many(context, error)
        if self._broker.partitions.is_cut_off and key in _WHO_LEADS:
            # Others know better, and clients ask again where they are connected already.
            connection.close_when_answered()

    def serve_here(
        self,
        context: RequestContext,
        request: memoryview,
        position: int,
        broker: "Broker | None" = None,
    ) -> None:
        """As above, for a request that comes from this process; the body begins at `position`.

        `broker` is the node as the handler is to see it, where that is not this one as it is.
        """
        module = self._modules.get(context.api.key) or self._module(context.api)
        if hasattr(module, "serve"):
            module.serve(broker or self._broker, context, request, position)
        else:
            self._handle(module, context, request[position:], broker)

    def _module(self, api: Api) -> ModuleType:
        """Handlers are imported on their first request: most nodes see few of the APIs."""
        module = self._modules[api.key] = load_handler(api.name)
        return module

    def _handle(
        self, module: ModuleType, context: RequestContext, body: memoryview, broker: "Broker | None" = None
    ) -> None:
        from millstream.protocol.codec import decode_request

        if len(body) > LARGE_REQUEST_BYTES:
            # The buffer is reused as soon as this returns.
            self._await(context, self._answer_large(module, context, bytes(body)))
            return
        request = decode_request(context.api, context.version, body)
        plan = PLANS.get(context.api.name)
        if plan is not None and is_long(plan, request):
            self._await(context, self._answer_in_slices(module, context, plan, request))
            return
        try:
            answer = module.handle(broker or self._broker, request, context)
        except KafkaError as error:
            answer = self._failure(context, error)
        if inspect.iscoroutine(answer):
            self._await(context, answer)
        elif is_large(context.api, context.version, answer):
            self._await(context, _ready(answer))
        else:
            self._reply(context, answer)

    def _await(self, context: RequestContext, answer: Coroutine[Any, Any, Any]) -> None:
        """Reply when the answer is there.

        Kafka handles one request of a connection at a time; a client may rely on the effect of the one before.
        """
        context.connection.block()
        task = asyncio.ensure_future(self._finish(context, context.reply_later(), answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer_large(self, module: ModuleType, context: RequestContext, body: bytes) -> Any:
        """For a request that takes long to read: others are served meanwhile."""
        from millstream.protocol.codec import decode_request

        api, version = context.api, context.version
        broker = self._broker
        # As read it is several times as large as on the wire.
        held_bytes = len(body) * _READ_OVER_SENT
        broker.server.memory.take(held_bytes)
        try:
            request = await broker.long_work.apart(lambda: decode_request(api, version, memoryview(body)))
            await broker.long_work.pause()
            plan = PLANS.get(api.name)
            if plan is not None and is_long(plan, request):
                return await self._answer_in_slices(module, context, plan, request)
            answer = module.handle(broker, request, context)
            return await answer if inspect.iscoroutine(answer) else answer
        finally:
            broker.server.memory.give_back(held_bytes)

    async def _answer_in_slices(
        self, module: ModuleType, context: RequestContext, plan: SlicePlan, request: Any
    ) -> Any:
        broker = self._broker
        answers = []
        for part in parts_of(plan, request):
            await broker.long_work.pause()
            answer = module.handle(broker, part, context)
            answers.append(await answer if inspect.iscoroutine(answer) else answer)
        return await broker.long_work.apart(lambda: joined(plan, answers))

    async def _finish(self, context: RequestContext, reply: LaterReply, answer: Any) -> None:
        connection = context.connection
        try:
            try:
                response = await answer
            except MalformedRequest:
                raise
            except KafkaError as error:
                response = self._failure(context, error)
            reply.complete(await self._encode_apart(context, response))
        except KafkaError as error:
            connection.refuse(f"{context.api.name}: {error.message}")
        except Exception:
            log.exception("request failed", peer=connection.peer, api=context.api.name)
            connection.close()
        except asyncio.CancelledError:
            # There will be no reply: without this the client would wait for it for ever.
            connection.close()
            raise
        finally:
            connection.unblock()

    def _reply(self, context: RequestContext, response: Any) -> None:
        context.reply(self._encode(context, response))

    def _encode(self, context: RequestContext, response: Any) -> Reply:
        from millstream.protocol.codec import encode_response

        self._note_error(context, response)
        return [encode_response(context.api, context.version, response)]

    async def _encode_apart(self, context: RequestContext, response: Any) -> Reply:
        """As above; a large reply in a thread."""
        from millstream.protocol.codec import encode_response

        if not is_large(context.api, context.version, response):
            return self._encode(context, response)
        self._note_error(context, response)
        return [
            await self._broker.long_work.apart(
                lambda: encode_response(context.api, context.version, response)
            )
        ]

    def _note_error(self, context: RequestContext, response: Any) -> None:
        code = getattr(response, "error_code", ErrorCode.NONE)
        if code != ErrorCode.NONE:
            self.count_error(context.api, ErrorCode(code))

    def refuse_too_many(self, context: RequestContext, error: TooManyElements) -> None:
        """With an error in the reply, where the API's reply has a place for one; else the connection ends."""
        self.count_error(context.api, error.code)
        module = self._module(context.api)
        if hasattr(module, "serve"):
            if not (hasattr(module, "refuse") and module.refuse(context, error.code)):
                raise KafkaError(error.code, f"{context.api.name}: {error.message}")
            return
        self._reply(context, self._failure(context, error))

    def count_error(self, api: Api, code: ErrorCode) -> None:
        self._broker.metrics.request_errors.labels(api.name, code.name).value += 1

    @staticmethod
    def _failure(context: RequestContext, error: KafkaError) -> Any:
        """A reply that only says what went wrong, for the messages that have a place for it."""
        from millstream.protocol.codec import error_response

        response = error_response(context.api, context.version, error.code, error.message)
        if response is None:
            raise error
        return response
