"""Admin requests that librdkafka does not have, sent over a connection of our own to any node of the cluster."""

from typing import Any

from millstream.cli.errors import CommandError, Unreachable
from millstream.cli.kafka import DEFAULT_PORT
from millstream.cli.options import parse_address
from millstream.client.node_connection import BadAnswer, NodeConnection
from millstream.protocol.errors import ErrorCode


class ClusterCalls:
    """One connection to the first bootstrap address that accepts it; a context manager.

    with ClusterCalls("localhost:9092") as calls:
        calls.call("list_partition_reassignments", topics=None).topics
    """

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._node = _connect(bootstrap)

    def __enter__(self) -> "ClusterCalls":
        return self

    def __exit__(self, *_: object) -> None:
        self._node.close()

    def call(self, name: str, **fields: Any) -> Any:
        """The reply to the newest version of the request; dictionaries stand for the entities within it."""
        try:
            return self._node.call(name, **fields)
        except BadAnswer as error:
            raise CommandError(f"{self.bootstrap}: {error.strerror}") from error
        except OSError as error:
            raise Unreachable(self.bootstrap, error.strerror or str(error)) from error

    def checked(self, action: str, name: str, **fields: Any) -> Any:
        """As `call`; an error of the reply as a whole ends the command."""
        reply = self.call(name, **fields)
        if reply.error_code != ErrorCode.NONE:
            raise CommandError(f"{action}: {reason_of(reply)}")
        return reply


def reason_of(result: Any) -> str:
    """What went wrong, in words and by Kafka's name."""
    try:
        name = ErrorCode(result.error_code).name
    except ValueError:
        name = f"error {result.error_code}"
    message = getattr(result, "error_message", None)
    if message is None and result.error_code == ErrorCode.NOT_CONTROLLER:
        message = "the cluster has no controller, because a majority of its nodes does not answer"
    return f"{message} ({name})" if message else name


def _connect(bootstrap: str) -> NodeConnection:
    reason = "no address is given"
    for address in (part.strip() for part in bootstrap.split(",")):
        if not address:
            continue
        host, port = parse_address(address if ":" in address else f"{address}:{DEFAULT_PORT}", "--bootstrap")
        try:
            return NodeConnection((host, port))
        except OSError as error:
            reason = error.strerror or str(error)
    raise Unreachable(bootstrap, reason)
