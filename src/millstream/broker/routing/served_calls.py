"""Carries out calls of doors, and answers those that other nodes' doors make.

A call takes one hop at most: a node that does not lead or coordinate its target refuses it with NotDone, and the caller
looks for the right node again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from millstream.broker.api.call import NO_REPLY, Call
from millstream.broker.coordinators.host import CoordinatorHost
from millstream.broker.routing.calls import (
    Acquire,
    AnyCall,
    Append,
    Ask,
    AskAll,
    Cancel,
    CreateTopicsFor,
    FindCoordinator,
    FindOffsetAt,
    FindOffsets,
    FollowMetadata,
    Look,
    NodeCall,
    Peek,
    Purge,
    Read,
    ReleaseAll,
    ReloadQueues,
    Settle,
    SubmitCommand,
    decode_call,
    encode,
    encode_answer,
    encode_refusal,
)
from millstream.broker.routing.coordinators import answers_here, decode_request
from millstream.broker.routing.here import Here
from millstream.broker.routing.metadata import MetadataFollowers, NodeMetadata
from millstream.broker.server.memory import MemoryBudget
from millstream.cluster.metadata.command_codec import BadCommand, decode_command, encode_result
from millstream.cluster.metadata.topics import CreateTopics
from millstream.doors.caller import Caller
from millstream.doors.queues import Acquired, Queues
from millstream.observability.logs import get_logger
from millstream.protocol.errors import ErrorCode, KafkaError, NotDone
from millstream.protocol.wire import MalformedRequest

log = get_logger("millstream.doors")

_MOST_CALLS = 20_000


def node_call(served: "ServedCalls", data: memoryview, call: Call) -> Any:
    """A call from the doors of another node or a gateway."""
    served.take(data, call)
    return NO_REPLY


class LocalCalls:
    """Carries out calls to this node, from its own doors or from those of another node."""

    def __init__(
        self, here: Here, host: CoordinatorHost, engine: Callable[[], Queues], metadata: NodeMetadata
    ) -> None:
        """`engine` makes the engine of queues when the first call for queues comes."""
        self._here = here
        self._host = host
        self._engine = engine
        self._metadata = metadata
        self._followers = MetadataFollowers(metadata)
        self._do: dict[type[Any], Callable[[Caller, Any], Awaitable[Any]]] = {
            Append: here.append,
            Read: here.read,
            FindOffsets: here.offsets,
            FindOffsetAt: here.offset_at,
            Ask: self._ask,
            AskAll: self._ask_all,
            FindCoordinator: lambda _, call: host.of(call.kind).find_partition(call.key),
            Acquire: self._acquire,
            Settle: lambda caller, call: self._queues.settle(
                caller, call.group, call.member, call.place, call.settlements, together=call.together
            ),
            ReleaseAll: lambda caller, call: self._queues.release_all(caller, call.group, call.member),
            Look: lambda caller, call: self._queues.look(caller, call.request),
            Peek: lambda caller, call: self._queues.peek(caller, call.request),
            Purge: lambda caller, call: self._queues.purge(caller, call.request),
            ReloadQueues: lambda caller, call: self._queues.reload(caller, call.group, call.topic),
            SubmitCommand: self._submit,
            CreateTopicsFor: self._create_topics,
            FollowMetadata: self._follow_metadata,
        }

    def carry_out(self, caller: Caller, call: NodeCall[Any]) -> Awaitable[Any]:
        return self._do[type(call)](caller, call)

    async def _ask(self, _caller: Caller, call: Ask) -> bytes:
        request = decode_request(self._host, call.kind, call.request)
        return encode(await self._host.of(call.kind).ask(call.key, request))

    async def _ask_all(self, _caller: Caller, call: AskAll) -> bytes:
        request = decode_request(self._host, call.kind, call.request)
        return encode(await answers_here(self._host, call.kind, request))

    async def _acquire(self, caller: Caller, call: Acquire) -> Acquired:
        return await self._queues.acquire(
            caller,
            call.group,
            call.member,
            call.place,
            max_messages=call.max_messages,
            max_bytes=call.max_bytes,
            max_wait_s=call.max_wait_s,
            max_held=call.max_held,
            whole_batches=call.whole_batches,
        )

    async def _follow_metadata(self, _caller: Caller, call: FollowMetadata) -> bytes:
        found = await self._followers.next(call.sent, call.max_wait_s)
        if self._here.is_cut_off:
            raise NotDone(ErrorCode.BROKER_NOT_AVAILABLE, "this node is cut off from the others")
        return found

    async def _submit(self, _caller: Caller, call: SubmitCommand) -> bytes:
        return encode_result(await self._metadata.submit(_command(call.command)))

    async def _create_topics(self, caller: Caller, call: CreateTopicsFor) -> bytes:
        wanted = _command(call.command)
        if not isinstance(wanted, CreateTopics):
            raise NotDone(ErrorCode.INVALID_REQUEST, "only topics are created")
        return encode_result(await self._metadata.create_topics(caller, wanted.topics))

    @property
    def _queues(self) -> Queues:
        return self._engine()


class ServedCalls:
    """Carries out calls of a connection concurrently; each is answered when it is done, in any order."""

    def __init__(self, local: LocalCalls, memory: MemoryBudget) -> None:
        self._local = local
        self._memory = memory
        self._tasks: WeakKeyDictionary[Any, dict[int, asyncio.Task[None]]] = WeakKeyDictionary()

    def take(self, data: memoryview, call: Call) -> None:
        """Start a call; it is answered when it is done."""
        # Copied: the read buffer is reused at once.
        caller, wanted = decode_call(bytes(data))
        tasks = self._tasks.setdefault(call.source, {})
        if isinstance(wanted, Cancel):
            if (cancelled := tasks.get(wanted.correlation)) is not None:
                cancelled.cancel()
            return
        if len(tasks) >= _MOST_CALLS:
            raise MalformedRequest(f"more than {_MOST_CALLS} calls are under way on one connection")
        self._memory.take(len(data))
        task = asyncio.get_running_loop().create_task(
            self._serve(caller, wanted, call), name=f"call {type(wanted).__name__}"
        )
        correlation = call.correlation_id
        tasks[correlation] = task

        def ended(task: "asyncio.Task[None]", size: int = len(data)) -> None:
            tasks.pop(correlation, None)
            self._memory.give_back(size)
            if task.cancelled():
                # Answered anyway, also before it began: the caller that cancelled it keeps a place for the answer.
                cancelled = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the call was cancelled")
                call.reply_body([encode_refusal(cancelled)])

        task.add_done_callback(ended)

    def close(self) -> None:
        for tasks in self._tasks.values():
            for task in list(tasks.values()):
                task.cancel()

    async def _serve(self, caller: Caller, wanted: AnyCall, call: Call) -> None:
        try:
            answer = await self._local.carry_out(caller, wanted)
        except KafkaError as error:
            body = encode_refusal(error)
        except Exception:
            log.exception("call failed", call=type(wanted).__name__)
            body = encode_refusal(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the node failed; see its log"))
        else:
            if call.is_abandoned and isinstance(wanted, Acquire):
                await self._give_back(caller, wanted, answer)
                return
            body = encode_answer(answer)
        call.reply_body([body])

    async def _give_back(self, caller: Caller, call: Acquire, acquired: Acquired) -> None:
        """Release messages of a caller that is gone, before their locks end."""
        if acquired.ranges:
            # If that fails, the locks end by themselves.
            with suppress(KafkaError):
                await self._local.carry_out(
                    caller, Settle(call.group, call.member, call.place, acquired.undelivered())
                )


def _command(data: bytes) -> Any:
    try:
        return decode_command(data)
    except BadCommand as error:
        raise NotDone(ErrorCode.INVALID_REQUEST, str(error)) from error
