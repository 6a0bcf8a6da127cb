"""`Admin` and its asyncio counterpart, `AsyncAdmin`."""

import asyncio
import functools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from millstream.client.admin.groups import GroupAdmin
from millstream.client.admin.settings import SettingsAdmin
from millstream.client.wire.cluster import Cluster
from millstream.client.wire.properties import cluster_settings

P = ParamSpec("P")
R = TypeVar("R")

_TIMEOUT_MS = 15_000


class Admin(GroupAdmin, SettingsAdmin):
    """Topics, partitions, settings, groups and offsets of a cluster; a context manager, for one thread at a time.

    >>> with Admin("localhost:9092") as admin:
    ...     admin.create_topic("clicks", partitions=3, configs={"retention.ms": "3600000"})
    ...     topic = admin.describe_topic("clicks")
    ...     print(topic.name, len(topic.partitions), topic.messages)
    ...     print(admin.topic_configs("clicks")["retention.ms"].value)
    ...     print([broker.id for broker in admin.metadata().brokers])
    ...     admin.set_offsets("reports", {("clicks", 0): 0})
    ...     print(admin.describe_group("reports").lag)
    ...     admin.delete_topic("clicks")
    clicks 3 0
    3600000
    [...]
    0

    bootstrap_servers: addresses (host:port) of one or more brokers
    client_id: the name that the broker's log and quotas know this client by
    timeout_ms: how long a call is retried after errors that may pass: an election, a coordinator that is loading
    extra: security by Kafka's names or librdkafka's: `{"security.protocol": "SSL", "ssl.ca.location": "ca.pem"}`
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        *,
        client_id: str = "millstream",
        timeout_ms: int = _TIMEOUT_MS,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(Cluster(cluster_settings(bootstrap_servers, client_id, extra, timeout_ms / 1000)))

    def close(self) -> None:
        """Disconnect; the next call connects again."""
        self._cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _awaited(
    method: Callable[Concatenate[Admin, P], R],
) -> Callable[Concatenate["AsyncAdmin", P], Coroutine[Any, Any, R]]:
    @functools.wraps(method)
    async def run(self: "AsyncAdmin", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._run(functools.partial(method, self._admin, *args, **kwargs))

    return run


class AsyncAdmin:
    """An `Admin` whose calls are awaited. None of them blocks the event loop; they run one after the other.

    >>> async def main():
    ...     async with AsyncAdmin("localhost:9092") as admin:
    ...         await admin.create_topic("views", partitions=2)
    ...         topic = await admin.describe_topic("views")
    ...         await admin.delete_topic("views")
    ...         return len(topic.partitions)
    >>> asyncio.run(main())
    2
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        *,
        client_id: str = "millstream",
        timeout_ms: int = _TIMEOUT_MS,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        self._admin = Admin(bootstrap_servers, client_id=client_id, timeout_ms=timeout_ms, extra=extra)
        self._thread = ThreadPoolExecutor(1, "millstream-admin")

    async def _run(self, call: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    metadata = _awaited(Admin.metadata)
    list_topics = _awaited(Admin.list_topics)
    describe_topic = _awaited(Admin.describe_topic)
    describe_partitions = _awaited(Admin.describe_partitions)
    create_topic = _awaited(Admin.create_topic)
    delete_topic = _awaited(Admin.delete_topic)
    add_partitions = _awaited(Admin.add_partitions)
    offsets = _awaited(Admin.offsets)
    delete_records = _awaited(Admin.delete_records)
    topic_configs = _awaited(Admin.topic_configs)
    broker_configs = _awaited(Admin.broker_configs)
    alter_topic_configs = _awaited(Admin.alter_topic_configs)
    alter_broker_configs = _awaited(Admin.alter_broker_configs)
    log_dirs = _awaited(Admin.log_dirs)
    list_groups = _awaited(Admin.list_groups)
    describe_group = _awaited(Admin.describe_group)
    describe_groups = _awaited(Admin.describe_groups)
    committed_offsets = _awaited(Admin.committed_offsets)
    set_offsets = _awaited(Admin.set_offsets)
    delete_offsets = _awaited(Admin.delete_offsets)
    delete_group = _awaited(Admin.delete_group)

    async def close(self) -> None:
        """Disconnect."""
        await self._run(self._admin.close)
        self._thread.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
