"""The same source and sink against Apache Kafka: its batches, its transactions, its security."""

import base64
import http.server
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

pytest.importorskip("numba", reason="the `spark` extra is not installed")
pytest.importorskip("pyspark", reason="the `spark` extra is not installed")

from pyspark.sql.types import BinaryType, StructField, StructType

from millstream.client.errors import NotAuthorizedError
from millstream.client.wire.cluster import Cluster
from millstream.client.wire.requests import LATEST
from millstream.spark.fetching import RangeReader
from millstream.spark.kafka_properties import cluster_settings
from millstream.spark.producing import TaskProducer
from millstream.spark.ranges import OffsetRange
from millstream.spark.write_options import write_options
from support.apache_kafka import PASSWORD, USER, ApacheKafka, unavailable
from support.topics import admin_for, create_topic

pytestmark = [
    pytest.mark.skipif(unavailable() is not None, reason=str(unavailable())),
    pytest.mark.xdist_group("spark"),
]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    node = ApacheKafka(tmp_path_factory.mktemp("kafka"))
    try:
        yield node.start()
    finally:
        node.close()


@pytest.fixture
def topic(kafka: ApacheKafka, new_topic) -> str:
    return create_topic(admin_for(kafka.plain), new_topic())


def values(properties: dict[str, str], topic: str, start: int = 0) -> list[bytes]:
    cluster = Cluster(cluster_settings(properties))
    try:
        end = cluster.offsets({(topic, 0): LATEST})[topic, 0]
        wanted = OffsetRange(topic, 0, start, end)
        reader = RangeReader(cluster, wanted, include_headers=True, fail_on_data_loss=True, poll_timeout_s=90)
        return [value for batch in reader.batches() for value in batch.column("value").to_pylist()]
    finally:
        cluster.close()


def produced(kafka: ApacheKafka, topic: str, count: int, **properties: Any) -> list[bytes]:
    producer = Producer({"bootstrap.servers": kafka.plain, **properties})
    made = [b"value %d" % number for number in range(count)]
    for value in made:
        producer.produce(topic, value, headers=[("h", value)])
    assert producer.flush(90) == 0
    return made


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec(kafka: ApacheKafka, topic: str, codec: str) -> None:
    made = produced(kafka, topic, 500, **{"compression.type": codec})
    assert values({"bootstrap.servers": kafka.plain}, topic) == made


def test_committed_reads_pass_over_aborted_transactions(kafka: ApacheKafka, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.plain, "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions(60)
    for number in range(6):
        producer.begin_transaction()
        for part in range(3):
            producer.produce(topic, b"%d.%d" % (number, part))
            producer.flush(90)
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    committed = {"bootstrap.servers": kafka.plain, "isolation.level": "read_committed"}
    everything = [b"%d.%d" % (number, part) for number in range(6) for part in range(3)]
    kept = [value for value in everything if int(value[:1]) % 2 == 0]
    assert values({"bootstrap.servers": kafka.plain}, topic) == everything
    assert values(committed, topic) == kept
    # From the middle of an aborted transaction, of which the markers alone are left.
    assert values(committed, topic, 5) == kept[3:]
    assert values(committed, topic, 7) == kept[3:]


def jaas(module: str, password: str = PASSWORD) -> str:
    return f'org.apache.kafka.common.security.{module} required username="{USER}" password="{password}";'


def secured(kafka: ApacheKafka, kind: str, password: str = PASSWORD) -> dict[str, str]:
    if kind == "SSL":
        return {
            "bootstrap.servers": kafka.tls,
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(kafka.ca_file),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(kafka.client_file),
        }
    module = "plain.PlainLoginModule" if kind == "PLAIN" else "scram.ScramLoginModule"
    return {
        "bootstrap.servers": kafka.sasl,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": kind,
        "sasl.jaas.config": jaas(module, password),
    }


@pytest.mark.parametrize("kind", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "SSL"])
def test_a_secured_listener_is_read_and_written(kafka: ApacheKafka, topic: str, kind: str) -> None:
    assert written_and_read(secured(kafka, kind), topic)


def written_and_read(properties: dict[str, str], topic: str) -> bool:
    import pyarrow as pa

    options = {f"kafka.{name}": value for name, value in properties.items()} | {"topic": topic}
    made = [b"%d" % number for number in range(100)]
    with TaskProducer(write_options(options, StructType([StructField("value", BinaryType())]))) as producer:
        producer.send(pa.record_batch({"value": pa.array(made, pa.binary())}))
    assert producer.rows == 100
    return values(properties, topic) == made


class Tokens(http.server.BaseHTTPRequestHandler):
    """An identity provider that gives the right client a token, unsigned as Kafka takes them in tests."""

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        expected = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.headers["Authorization"] != f"Basic {expected}" or "client_credentials" not in form:
            self.send_error(401)
            return
        claims = {"sub": USER, "iat": time.time() - 10, "exp": time.time() + 600, "scope": "read"}
        parts = [
            base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
            for part in ({"alg": "none"}, claims)
        ]
        body = json.dumps(
            {"access_token": ".".join(parts) + ".", "token_type": "Bearer", "expires_in": 600}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Not into the output of the tests."""


@pytest.fixture
def token_endpoint() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Tokens) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/token"
        server.shutdown()


def test_a_token_of_an_identity_provider_opens_the_door(
    kafka: ApacheKafka, topic: str, token_endpoint: str
) -> None:
    properties = {
        "bootstrap.servers": kafka.sasl,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": token_endpoint,
        "sasl.oauthbearer.client.id": USER,
        "sasl.oauthbearer.client.secret": PASSWORD,
    }
    assert written_and_read(properties, topic)
    with pytest.raises(NotAuthorizedError, match="gave no token: HTTP 401"):
        values({**properties, "sasl.oauthbearer.client.secret": "guessed"}, topic)


@pytest.mark.parametrize("kind", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password_is_refused_at_once(kafka: ApacheKafka, topic: str, kind: str) -> None:
    with pytest.raises(NotAuthorizedError, match="refused user 'alice'"):
        values(secured(kafka, kind, "guessed"), topic)


def test_an_unknown_authority_is_refused_at_once(kafka: ApacheKafka, topic: str) -> None:
    with pytest.raises(NotAuthorizedError, match="certificate is refused"):
        values({"bootstrap.servers": kafka.tls, "security.protocol": "SSL"}, topic)
