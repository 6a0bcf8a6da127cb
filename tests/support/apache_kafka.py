"""Apache Kafka itself, one node with every kind of listener, where its jars are at hand."""

import os
import shutil
import socket
import subprocess
import time
import uuid
from pathlib import Path

from millstream.runtime.ports import ReservedPorts

JARS = os.environ.get("MILLSTREAM_TEST_KAFKA_JARS")
MISSING = "needs Apache Kafka's jars in MILLSTREAM_TEST_KAFKA_JARS; `make java` fetches them"
USER, PASSWORD = "alice", "alice's secret"
_START_TIMEOUT_S = 300.0
_JAAS = "org.apache.kafka.common.security"


class ApacheKafka:
    """Listeners: `plain`, `sasl` (PLAIN, SCRAM, unsigned tokens), and `tls`, which asks for a client's certificate."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._reserved = ReservedPorts(4)
        self.plain, self.sasl, self.tls, self._controller = (
            f"localhost:{port}" for port in self._reserved.ports
        )
        self.ca_file = directory / "ca.pem"
        self.client_file = directory / "client.pem"

    def start(self) -> "ApacheKafka":
        self._make_certificates()
        settings = self._directory / "server.properties"
        settings.write_text(self._settings())
        scram = [
            f"--add-scram={each}=[name={USER},password={PASSWORD}]"
            for each in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        ]
        cluster_id = uuid.uuid4().hex[:22]
        self._java("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(settings), *scram)
        with (self._directory / "kafka.log").open("wb") as log:
            self._process = subprocess.Popen(
                _command("kafka.Kafka", str(settings)), stdout=log, stderr=log, cwd=self._directory
            )
        self._wait()
        return self

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _wait(self) -> None:
        assert self._process is not None
        host, _, port = self.plain.rpartition(":")
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            assert self._process.poll() is None, (self._directory / "kafka.log").read_text()[-4000:]
            try:
                socket.create_connection((host, int(port)), 1).close()
            except OSError:
                assert time.monotonic() < deadline, (self._directory / "kafka.log").read_text()[-4000:]
                time.sleep(0.2)
            else:
                return

    def _java(self, *arguments: str) -> None:
        done = subprocess.run(
            _command(*arguments), capture_output=True, text=True, timeout=90, check=False, cwd=self._directory
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _settings(self) -> str:
        login = f'username="{USER}" password="{PASSWORD}"'
        server = self._directory / "server.pem"
        listeners = {"PLAIN": self.plain, "USERS": self.sasl, "TLS": self.tls, "CONTROLLER": self._controller}
        addresses = [f"{name}://{address}" for name, address in listeners.items()]
        values = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{self._controller}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAIN",
            "listeners": ",".join(addresses),
            "advertised.listeners": ",".join(addresses[:3]),
            "listener.security.protocol.map": "PLAIN:PLAINTEXT,USERS:SASL_PLAINTEXT,TLS:SSL,CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.users.plain.sasl.jaas.config": (
                f'{_JAAS}.plain.PlainLoginModule required {login} user_{USER}="{PASSWORD}";'
            ),
            "listener.name.users.scram-sha-256.sasl.jaas.config": f"{_JAAS}.scram.ScramLoginModule required;",
            "listener.name.users.scram-sha-512.sasl.jaas.config": f"{_JAAS}.scram.ScramLoginModule required;",
            "listener.name.users.oauthbearer.sasl.jaas.config": (
                f"{_JAAS}.oauthbearer.OAuthBearerLoginModule required;"
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(server),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca_file),
            "ssl.client.auth": "required",
            "log.dirs": str(self._directory / "data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.cleaner.backoff.ms": "200",
        }
        return "".join(f"{name}={value}\n" for name, value in values.items())

    def _make_certificates(self) -> None:
        self._openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem",
                      "-subj", "/CN=test authority", "-days", "2")  # fmt: skip
        extension = self._directory / "names.ext"
        extension.write_text("subjectAltName=DNS:localhost")
        for name in ("server", "client"):
            self._openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr",
                          "-subj", f"/CN={name}")  # fmt: skip
            self._openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                          "-out", f"{name}.crt", "-days", "2", "-extfile", "names.ext")  # fmt: skip
            parts = [(self._directory / f"{name}.{kind}").read_text() for kind in ("key", "crt")]
            (self._directory / f"{name}.pem").write_text("".join(parts))

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self._directory, check=True, capture_output=True)


def unavailable() -> str | None:
    """Why Apache Kafka cannot be started here."""
    if JARS is None:
        return MISSING
    return next((f"needs {tool}" for tool in ("java", "openssl") if shutil.which(tool) is None), None)


def _command(*arguments: str) -> list[str]:
    return ["java", "-Xmx400m", "-cp", f"{JARS}/*", *arguments]
