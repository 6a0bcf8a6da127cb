"""Requests to a coordinator: in this process, or by a call to the node that leads its partition."""

import asyncio
from typing import Any, TypeVar

import msgspec

from millstream.broker.coordinators.host import CoordinatorHost
from millstream.broker.routing.calls import Ask, AskAll, FindCoordinator, encode
from millstream.broker.routing.routes import Routes
from millstream.coordinator.decision import Request, answer_type
from millstream.doors.caller import Caller
from millstream.doors.cluster import CoordinatorKind
from millstream.protocol.errors import ErrorCode, KafkaError, NotDone

A = TypeVar("A")

_request_decoders: dict[CoordinatorKind, "msgspec.msgpack.Decoder[Any]"] = {}
_answer_decoders: dict[type[Any], "msgspec.msgpack.Decoder[Any]"] = {}


class RoutedCoordinators:
    def __init__(self, host: CoordinatorHost | None, routes: Routes) -> None:
        """`host` is None in a process that coordinates nothing."""
        self._host = host
        self._routes = routes

    async def ask(
        self, caller: Caller, kind: CoordinatorKind, key: str, request: Request[A], *, timeout_s: float = 10.0
    ) -> A:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        await self._make_topic(caller, kind, key, timeout_s)
        local: A

        async def here() -> bytes:
            nonlocal local
            assert self._host is not None
            local = await self._host.of(kind).ask(key, request)
            return b""

        answer = await self._routes.at_node(
            caller,
            lambda: self._routes.view.coordinator(kind, key),
            here,
            lambda: Ask(kind, key, encode(request), timeout_s),
            patience_s=deadline - loop.time(),
            wait_s=timeout_s,
            may_repeat=False,
        )
        return decode_answer(request, answer) if answer else local

    async def ask_all(
        self, caller: Caller, kind: CoordinatorKind, request: Request[A], *, timeout_s: float = 10.0
    ) -> list[A]:
        topic = self._routes.metadata.image.topic(kind.value)
        if topic is None:
            return []
        data = encode(request)

        async def of_node(node_id: int) -> dict[int, A]:
            if self._host is not None and node_id == self._routes.view.node_id:
                return await answers_here(self._host, kind, request)
            answers = await self._routes.link(node_id).call(caller, AskAll(kind, data), timeout_s)
            return msgspec.msgpack.decode(answers, type=dict[int, answer_type(type(request))])  # type: ignore[misc]

        nodes = [broker.broker_id for broker in self._routes.view.brokers()]
        answers: dict[int, A] = {}
        for found in await asyncio.gather(*map(of_node, nodes)):
            answers |= found
        silent = [index for index in range(len(topic.partitions)) if index not in answers]
        if silent:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"{len(silent)} of {len(topic.partitions)} partitions of {kind.value} have no coordinator now:"
                " try again",
            )
        return [answers[index] for index in sorted(answers)]

    async def _make_topic(self, caller: Caller, kind: CoordinatorKind, key: str, timeout_s: float) -> None:
        """Before the first request of a kind, let a node create the internal topic."""
        if self._routes.metadata.image.topic(kind.value) is not None:
            return

        async def here() -> int:
            assert self._host is not None
            return await self._host.of(kind).find_partition(key)

        await self._routes.at_node(
            caller,
            self._any_node,
            here,
            lambda: FindCoordinator(kind, key),
            patience_s=timeout_s,
            wait_s=timeout_s,
            may_repeat=True,
        )

    def _any_node(self) -> int | None:
        if self._host is not None:
            return self._routes.view.node_id
        return next((broker.broker_id for broker in self._routes.view.brokers()), None)


async def answers_here(host: CoordinatorHost, kind: CoordinatorKind, request: Request[A]) -> dict[int, A]:
    """Answers of all coordinators of this node, by partition. One that has just moved away is left out."""
    if not host.knows(kind) or host.image.topic(kind.value) is None:
        return {}
    answers: dict[int, A] = {}
    for index, answer in (await host.of(kind).ask_all(request)).items():
        if not isinstance(answer, KafkaError):
            answers[index] = answer
        elif answer.code != ErrorCode.NOT_COORDINATOR:
            raise answer
    return answers


def decode_request(host: CoordinatorHost, kind: CoordinatorKind, data: bytes) -> Request[Any]:
    """Decode what another node sent; NotDone when this node does not know the request."""
    decoder = _request_decoders.get(kind)
    if decoder is None:
        requests = host.of(kind).requests
        if requests is None:
            raise NotDone(ErrorCode.UNSUPPORTED_VERSION, f"{kind.value} is not asked by other nodes")
        decoder = _request_decoders[kind] = msgspec.msgpack.Decoder(requests)
    try:
        request: Request[Any] = decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise NotDone(ErrorCode.UNSUPPORTED_VERSION, f"a request that cannot be read: {error}") from error
    return request


def decode_answer(request: Request[A], data: bytes) -> A:
    decoder = _answer_decoders.get(type(request))
    if decoder is None:
        decoder = _answer_decoders[type(request)] = msgspec.msgpack.Decoder(answer_type(type(request)))
    answer: A = decoder.decode(data)
    return answer
