"""Admin requests that librdkafka does not have, sent over a connection of our own to any node of the cluster."""

from typing import Any

from millstream.cli.errors import CommandError, Unreachable, UsageError
from millstream.cli.kafka import DEFAULT_PORT
from millstream.cli.options import parse_address
from millstream.client.node_connection import BadAnswer, NodeConnection
from millstream.protocol.errors import ErrorCode


class ClusterCalls:
    """A connection to the first bootstrap address that answers; a context manager.

    When it breaks, the request goes to the next address: all that are made here can be made twice.

    with ClusterCalls("localhost:9092") as calls:
        calls.call("list_partition_reassignments", topics=None).topics
    """

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._addresses = _addresses(bootstrap)
        self._node: NodeConnection | None = None

    def __enter__(self) -> "ClusterCalls":
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def call(self, name: str, **fields: Any) -> Any:
        """The reply to the newest version of the request; dictionaries stand for the entities within it."""
        reason = ""
        # Once more than there are: the first may be a connection that was open and is broken.
        for _ in range(len(self._addresses) + 1):
            try:
                return self._connection().call(name, **fields)
            except BadAnswer as error:
                raise CommandError(f"{self.bootstrap}: {error.strerror}") from error
            except OSError as error:
                reason = error.strerror or str(error)
                self._close()
                self._addresses.append(self._addresses.pop(0))
        raise Unreachable(self.bootstrap, reason)

    def _connection(self) -> NodeConnection:
        if self._node is None:
            self._node = NodeConnection(self._addresses[0])
        return self._node

    def _close(self) -> None:
        if self._node is not None:
            self._node.close()
            self._node = None

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
    if result.error_code == ErrorCode.NOT_CONTROLLER:
        message = (
            "the cluster has no controller, because a majority of its nodes does not answer; start the nodes that"
            " are away, and see `millstream cluster status`"
        )
    return f"{message} ({name})" if message else name


def _addresses(bootstrap: str) -> list[tuple[str, int]]:
    addresses = [part.strip() for part in bootstrap.split(",") if part.strip()]
    if not addresses:
        raise UsageError("--bootstrap names no address; write HOST:PORT, such as 127.0.0.1:9092")
    return [
        parse_address(each if ":" in each else f"{each}:{DEFAULT_PORT}", "--bootstrap") for each in addresses
    ]
