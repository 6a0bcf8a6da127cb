"""Real brokers for tests, each in its own process: one (`EmbeddedBroker`), or a cluster (`EmbeddedCluster`)."""

import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from millstream.runtime.ports import ReservedPorts
from millstream.testing.processes import READY_SECONDS, NodeFailed, NodeProcess, Process, node_environment

Topics = Mapping[str, "int | Mapping[str, object]"] | Iterable[str]
"""Names; names and partitions; or names and settings, `{"events": {"partitions": 3, "retention.ms": 1000}}`."""

_SECTIONS = ("broker", "cluster", "storage", "performance", "replication", "http", "proxy", "log")
# Without this a group's first member waits three seconds for others.
_DEFAULTS: dict[str, object] = {"group.initial.rebalance.delay.ms": 0}


# Its former name.
BrokerFailed = NodeFailed


class EmbeddedBroker(NodeProcess):
    """A Millstream broker on a free port, with an empty data directory that is removed afterwards.

        with EmbeddedBroker(topics={"events": 3}) as broker:
            producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

    Any Kafka client can use it. The broker ends with the program that started it, however that ends.

    `topics` exist from the start. `settings` are those of the configuration file, `{"storage.segment_size": "1MB"}`,
    or Kafka's, `{"log.retention.ms": 1000}`. `directory` is kept when it is given. `addresses`, for clients
    and for HTTP, are free ones unless they are given.
    """

    def __init__(
        self,
        *,
        topics: Topics = (),
        settings: Mapping[str, object] | None = None,
        directory: Path | str | None = None,
        addresses: tuple[str, str] | None = None,
        name: str = "the broker",
        start_timeout_s: float = READY_SECONDS,
    ) -> None:
        super().__init__(name, Path("broker.log"))
        self.topics = _topics(topics)
        self.settings = {**_DEFAULTS, **(settings or {})}
        self._start_timeout_s = start_timeout_s
        self._given_directory = None if directory is None else Path(directory)
        self._directory: Path | None = None
        self._reserved: ReservedPorts | None = None
        self._listen, self._http = addresses or ("", "")

    @property
    def bootstrap_servers(self) -> str:
        """The broker's host:port, as clients expect it."""
        self._running()
        return self._listen

    @property
    def http_url(self) -> str:
        """The URL for messages over HTTP, /metrics and /health."""
        self._running()
        return f"http://{self._http}"

    @property
    def data_dir(self) -> Path:
        return self._home() / "data"

    def start(self) -> Self:
        """Start, and return when clients can connect. After `kill` or `stop` it uses the same addresses again."""
        self.launch()
        self.wait_until_ready(self._start_timeout_s)
        return self

    def launch(self) -> None:
        if self._directory is None:
            self._directory = self._given_directory or Path(tempfile.mkdtemp(prefix="millstream-"))
            self._directory.mkdir(parents=True, exist_ok=True)
            self.log_file = self._directory / "broker.log"
        if not self._listen:
            self._reserved = ReservedPorts(2)
            self._listen, self._http = self._reserved.addresses
        self._write_settings()
        super().launch()

    def _spawn(self, log: IO[bytes]) -> Process:
        self._command, self._environment = self._serve_command(), node_environment()
        return super()._spawn(log)

    def restart(self) -> Self:
        """Stop cleanly and start again, on the same addresses and with the same data."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """Stop the broker, if it runs, and remove its data."""
        try:
            if self.process is not None:
                self.stop()
        finally:
            if self._reserved is not None:
                self._reserved.close()
                self._reserved, self._listen = None, ""
            if self._given_directory is None and self._directory is not None:
                shutil.rmtree(self._directory, ignore_errors=True)
                self._directory = None

    def create_topics(self, topics: Topics) -> None:
        """Create topics while the broker runs; existing ones are left as they are."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        wanted = []
        for name, given in _topics(topics).items():
            configs = {key: str(value) for key, value in given.items() if key != "partitions"}
            wanted.append(NewTopic(name, int(str(given.get("partitions", 1))), config=configs))
        for future in admin.create_topics(wanted).values() if wanted else ():
            try:
                future.result(self._start_timeout_s)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self._abandon()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"the log of {self.name} ends with:\n{self.log_tail()}")
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    def _serve_command(self) -> list[str]:
        removed = "" if self._given_directory is not None else str(self._home())
        # -P: modules in the tests' directory must not shadow the broker's.
        command = [sys.executable, "-P", "-m", "millstream.testing.guarded_serve", removed, "serve"]
        command += ["--data", str(self.data_dir), "--listen", self._listen, "--http", self._http]
        return [*command, "--config", str(self._home() / "settings.yaml"), "--log-format", "json"]

    def _write_settings(self) -> None:
        """JSON is YAML too, and needs no library here."""
        sections: dict[str, dict[str, object]] = {}
        for name, value in self.settings.items():
            section, _, key = name.partition(".")
            # Kafka has names such as log.retention.ms; none of our keys has a dot.
            if section not in _SECTIONS or "." in key:
                section, key = "kafka", name
            sections.setdefault(section, {})[key] = value
        (self._home() / "settings.yaml").write_text(json.dumps({**sections, "topics": self.topics}, indent=1))

    def _home(self) -> Path:
        if self._directory is None:
            raise BrokerFailed("the broker was not started")
        return self._directory

    def _abandon(self) -> None:
        if self.process is not None:
            self.kill()
        self.close()


class EmbeddedCluster:
    """Brokers 1 to `count` that are one cluster, each as an `EmbeddedBroker`.

        with EmbeddedCluster(3, topics={"events": 3}) as cluster:
            producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
            cluster.brokers[2].kill()
            cluster.brokers[2].start()

    New topics have up to three replicas, and a write needs two of them, unless `settings` say otherwise.
    """

    def __init__(
        self,
        count: int = 3,
        *,
        topics: Topics = (),
        settings: Mapping[str, object] | None = None,
        directory: Path | str | None = None,
        start_timeout_s: float = READY_SECONDS,
    ) -> None:
        self.topics = topics
        self._start_timeout_s = start_timeout_s
        self._reserved = ReservedPorts(2 * count)
        addresses = self._reserved.addresses
        common = {
            "default.replication.factor": min(count, 3),
            "min.insync.replicas": min(count, 2),
            # All brokers start now, so none can belong to another cluster.
            "cluster.founding_wait": "0ms",
            "cluster.bootstrap_servers": addresses[:count],
            **(settings or {}),
        }
        self.brokers = {
            number: EmbeddedBroker(
                settings={**common, "broker.id": number},
                directory=None if directory is None else Path(directory) / f"broker-{number}",
                addresses=(addresses[number - 1], addresses[count + number - 1]),
                name=f"broker {number}",
            )
            for number in range(1, count + 1)
        }

    @property
    def bootstrap_servers(self) -> str:
        """The host:port of all brokers, as clients expect it."""
        return ",".join(self._reserved.addresses[: len(self.brokers)])

    def start(self) -> Self:
        """Start all brokers, and return when clients can connect and the topics exist."""
        for broker in self.brokers.values():
            broker.launch()
        for broker in self.brokers.values():
            broker.wait_until_ready(self._start_timeout_s)
        self.create_topics(self.topics)
        return self

    def create_topics(self, topics: Topics) -> None:
        """Create topics while the cluster runs, and return when all running brokers know their leaders. Existing
        topics are left as they are.
        """
        running = [each for each in self.brokers.values() if each.is_running]
        running[0].create_topics(topics)
        names, deadline = _topics(topics).keys(), time.monotonic() + self._start_timeout_s
        for broker in running:
            while not _all_led(broker.bootstrap_servers, names):
                if time.monotonic() > deadline:
                    raise NodeFailed(f"{broker.name} does not know the leaders of {', '.join(names)}")
                time.sleep(0.02)

    def close(self) -> None:
        """Stop all brokers and remove their data; NodeFailed if one of them has exited by itself."""
        with ExitStack() as closing:
            closing.callback(self._reserved.close)
            for broker in self.brokers.values():
                # In a clean stop each would hand its partitions over to the next, for nothing.
                if broker.is_running:
                    broker.kill()
                closing.callback(broker.close)

    def log_tail(self, lines: int = 20) -> str:
        """The end of each broker's log."""
        return "\n".join(f"{each.name}:\n{each.log_tail(lines)}" for each in self.brokers.values())

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None:
            error.add_note(f"the logs of the embedded cluster end with:\n{self.log_tail()}")
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)


def _all_led(address: str, names: Collection[str]) -> bool:
    """Whether all topics have leaders, as the broker at this address knows it."""
    from millstream.client.wire.cluster import Cluster
    from millstream.client.wire.properties import addresses
    from millstream.client.wire.settings import ClusterSettings

    with Cluster(ClusterSettings(addresses(address))) as cluster:
        found = cluster.topics(names)
    return len(found) == len(names) and all(
        part.leader >= 0 for topic in found.values() for part in topic.partitions
    )


def _topics(topics: Topics) -> dict[str, dict[str, object]]:
    if isinstance(topics, str):
        topics = (topics,)
    if not isinstance(topics, Mapping):
        return {name: {"partitions": 1} for name in topics}
    return {
        name: {"partitions": given} if isinstance(given, int) else dict(given)
        for name, given in topics.items()
    }
