"""Admin handlers on real metadata, without a node: every version of what they answer must be readable by kio."""

import asyncio
import datetime
import functools
import importlib
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from kio.schema.create_topics.v7 import request as create_topics_v7
from kio.serial import entity_reader

from millstream.broker.api.served import make_handler
from millstream.broker.api.table import TABLE
from millstream.broker.server.listener import ShownNode
from millstream.broker.wiring import HandlerParts
from millstream.cluster.metadata.defaults import Defaults
from millstream.cluster.metadata.image import TopicImage
from millstream.cluster.metadata.records import Endpoint
from millstream.cluster.metadata.service import MetadataService
from millstream.config.settings import Settings
from millstream.protocol.api import APIS, Api
from millstream.protocol.codec import encode_response
from millstream.runtime.disk import Disk, SystemDisk

PATIENCE = datetime.timedelta(seconds=90)


TOPIC, BROKER = 2, 4


API_BY_NAME = {api.name: api for api in APIS.values()}


@dataclass(frozen=True)
class Log:
    size_bytes: int = 123
    log_end_offset: int = 5


@dataclass(frozen=True)
class Partition:
    log: Log = Log()
    high_watermark: int = 5


@dataclass
class Broker:
    metadata: MetadataService
    settings: Settings
    node_id: int = 1
    disk: Disk = field(default_factory=SystemDisk)

    @property
    def partitions(self) -> "Broker":
        return self

    @property
    def store(self) -> "Broker":
        return self

    @property
    def machine(self) -> "Broker":
        return self

    @property
    def data_dir(self) -> str:
        return self.settings.broker.data_dir

    @property
    def defaults(self) -> Defaults:
        return Defaults.of(self.settings)

    def get(self, topic: str, index: int, /) -> Partition | None:
        return Partition() if self.metadata.image.partition(topic, index) else None

    async def call(self, name: str, request: Any, version: int | None = None) -> Any:
        """The handler's answer, after checking that every version of it can be read."""
        api = API_BY_NAME[name]
        version = api.max_version if version is None else version
        handler = make_handler(TABLE[api.key], HandlerParts(cast(Any, self), lambda: cast(Any, None)))
        answer = getattr(handler, "handle", handler)(request, Context(version))
        response = await answer if inspect.iscoroutine(answer) else answer
        for each in range(api.min_version, api.max_version + 1):
            read_with_kio(api, each, response)
        return response


@dataclass(frozen=True)
class Context:
    version: int
    only_node: ShownNode | None = None

    def shown_leader(self, _topic: TopicImage) -> int | None:
        return None


def read_with_kio(api: Api, version: int, response: Any) -> Any:
    module = importlib.import_module(f"kio.schema.{api.name}.v{version}.response")
    wanted = (api.name.replace("_", "") + "response").lower()
    entity = next(value for name, value in vars(module).items() if name.lower() == wanted)
    body = encode_response(api, version, response)
    decoded, size = entity_reader(entity)(body, 0)
    assert size == len(body)
    return decoded


@asynccontextmanager
async def running(data_dir: Path, *topics: Any, settings: Settings | None = None) -> AsyncIterator[Broker]:
    endpoints = (Endpoint("PLAINTEXT", "localhost", 9092),)
    metadata = await MetadataService.open(
        SystemDisk(), str(data_dir), node_id=1, endpoints=endpoints, rack="r1"
    )
    base = settings or Settings()
    broker = Broker(metadata, replace(base, broker=replace(base.broker, data_dir=str(data_dir))))
    if topics:
        await broker.call("create_topics", create_request(*topics))
    try:
        yield broker
    finally:
        await metadata.close()


def in_loop(test: Callable[..., Coroutine[object, object, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: object, **kwargs: object) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def new_topic(name: str, partitions: int = 1, **configs: str | None) -> Any:
    return create_topics_v7.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=-1,
        assignments=(),
        configs=tuple(
            create_topics_v7.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ),
    )


def create_request(*topics: Any, validate_only: bool = False) -> Any:
    return create_topics_v7.CreateTopicsRequest(topics=topics, timeout=PATIENCE, validate_only=validate_only)
