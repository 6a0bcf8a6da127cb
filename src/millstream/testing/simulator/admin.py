"""Creates and deletes topics, and records the answers."""

import asyncio
from math import inf

from millstream.protocol.errors import ErrorCode
from millstream.testing.history.topics import TopicCall, TopicRequest
from millstream.testing.simulator import requests
from millstream.testing.simulator.client import NoAnswer, SimulatedClient

_SECONDS = 6.0
_THERE = {
    (TopicRequest.CREATE, ErrorCode.NONE): False,
    (TopicRequest.CREATE, ErrorCode.TOPIC_ALREADY_EXISTS): True,
    (TopicRequest.DELETE, ErrorCode.NONE): True,
    (TopicRequest.DELETE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): False,
}


class SimulatedAdmin:
    def __init__(self, client: SimulatedClient, calls: list[TopicCall], replicas: int) -> None:
        self.client = client
        self._calls = calls
        self._replicas = replicas

    async def create(self, topic: str, partitions: int, configs: dict[str, str] | None = None) -> bool:
        """Whether the topic certainly exists now."""
        body = requests.create_topic_request(topic, partitions, self._replicas, configs or {})
        answer = await self._ask(
            topic, TopicRequest.CREATE, requests.CREATE_TOPICS, requests.CREATE_TOPICS_VERSION, body
        )
        return answer is not None

    async def delete(self, topic: str) -> bool:
        """Whether the topic is certainly deleted."""
        body = requests.delete_topic_request(topic)
        answer = await self._ask(
            topic, TopicRequest.DELETE, requests.DELETE_TOPICS, requests.DELETE_TOPICS_VERSION, body
        )
        return answer is not None

    async def create_surely(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        while not await self.create(topic, partitions, configs):  # noqa: ASYNC110 - there is nobody to tell
            await asyncio.sleep(0.2)

    async def _ask(
        self, topic: str, request: TopicRequest, api: int, version: int, body: bytes
    ) -> bool | None:
        client = self.client
        start = client.loop.time()
        was_there = None
        try:
            reply = await client.ask(client.any_node(), api, version, body, _SECONDS)
            was_there = _THERE.get((request, ErrorCode(requests.read_topic_error(reply))))
        except NoAnswer:
            pass
        end = inf if was_there is None else client.loop.time()
        self._calls.append(TopicCall(topic, request, was_there, start, end))
        return was_there
