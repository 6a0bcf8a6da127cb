"""The way to a cluster: librdkafka clients set up alike, and a quick answer when nobody listens."""

import socket
from concurrent.futures import Future
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from millstream.cli.errors import NoAnswer, Unreachable, UsageError, debugging, kafka_failure
from millstream.cli.options import parse_address

CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 15.0
DEFAULT_PORT = 9092


def admin_client(bootstrap: str) -> AdminClient:
    return AdminClient(client_settings(bootstrap))


def producer(bootstrap: str, **settings: Any) -> Producer:
    return Producer({**client_settings(bootstrap), **settings})


def consumer(bootstrap: str, **settings: Any) -> Consumer:
    # librdkafka wants a group name even from a reader that joins no group.
    group = {"group.id": "millstream-cli", "enable.auto.commit": False, "allow.auto.create.topics": False}
    return Consumer({**client_settings(bootstrap), **group, **settings})


def client_settings(bootstrap: str) -> dict[str, Any]:
    """Settings of every client; raises `Unreachable` when no bootstrap address accepts a connection."""
    require_listener(bootstrap)
    return {
        "bootstrap.servers": bootstrap,
        "client.id": "millstream-cli",
        "socket.connection.setup.timeout.ms": int(CONNECT_TIMEOUT_S * 1000),
        # librdkafka writes its own log to standard error, where only our one line belongs.
        "log_level": 6 if debugging() else 0,
    }


def require_listener(bootstrap: str) -> None:
    """librdkafka retries a refused connection until its timeout; a person wants to know at once."""
    addresses = [part.strip() for part in bootstrap.split(",") if part.strip()]
    if not addresses:
        raise UsageError("--bootstrap names no address; write HOST:PORT, such as 127.0.0.1:9092")
    reason = ""
    for address in addresses:
        host, port = parse_address(address if ":" in address else f"{address}:{DEFAULT_PORT}", "--bootstrap")
        try:
            socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S).close()
        except OSError as error:
            reason = error.strerror or str(error)
        else:
            return
    raise Unreachable(bootstrap, reason)


def result_of(action: str, future: "Future[Any]", bootstrap: str) -> Any:
    """The value of an admin call, or the command error that tells why there is none."""
    try:
        return future.result(timeout=REQUEST_TIMEOUT_S + 5)
    except KafkaException as error:
        raise kafka_failure(action, error.args[0], bootstrap) from error
    except TimeoutError as error:
        raise NoAnswer(action, "no answer in time") from error
