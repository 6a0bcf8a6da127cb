"""All clients of one node."""

from types import TracebackType

import pytest

from support.clients import kcat
from support.clients.aio import AiokafkaClient
from support.clients.confluent import ConfluentClient
from support.clients.kafka_python import KafkaPythonClient
from support.clients.kcat import KcatClient
from support.clients.message import Client

LIBRARIES = [ConfluentClient.name, KafkaPythonClient.name, AiokafkaClient.name]
EVERY_CLIENT = [*LIBRARIES, KcatClient.name]


class Clients:
    """A client of each kind, made when first asked for; closed at the end of a `with`."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.confluent = ConfluentClient(bootstrap)
        self.kafka_python = KafkaPythonClient(bootstrap)
        self.aiokafka = AiokafkaClient(bootstrap)
        self._kcat = KcatClient(bootstrap)

    @property
    def kcat(self) -> KcatClient:
        if not kcat.AVAILABLE:
            pytest.skip("kcat is not installed")
        return self._kcat

    def __getitem__(self, name: str) -> Client:
        client: Client = getattr(self, name.replace("-", "_"))
        return client

    def readers(self) -> list[Client]:
        """Every client that is installed."""
        libraries: list[Client] = [self.confluent, self.kafka_python, self.aiokafka]
        return [*libraries, self._kcat] if kcat.AVAILABLE else libraries

    def __enter__(self) -> "Clients":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for client in (self.confluent, self.kafka_python, self.aiokafka):
            client.close()
