"""The target cluster of a command: the options that name it, and the clients that connect to it.

`@on_cluster` adds the options --bootstrap, -X and --profile to a command, and passes the result as `target`.
"""

import inspect
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from millstream.cli import output
from millstream.cli.errors import ExitCode, Unreachable, UsageError, debugging, message_and_code, print_error
from millstream.cli.options import confirm, parse_pairs

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer

    from millstream.client.admin.face import Admin
    from millstream.client.queue_admin import QueueAdmin
    from millstream.client.queue_consumer import QueueConsumer
    from millstream.client.wire.cluster import Cluster
    from millstream.client.wire.settings import ClusterSettings


Command = TypeVar("Command", bound=Callable[..., Any])

CONNECT_TIMEOUT_S = 5.0
DEFAULT_BOOTSTRAP = "localhost:9092"
_PATIENCE_S = 30.0
# Longer than a node takes to answer with a time-out.
_REPLY_S = 65.0
_CLIENT_ID = "millstream-cli"
_SERVERS = "bootstrap.servers"
_SECURITY = ("security.", "ssl.", "sasl.", "enable.ssl.")

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="MILLSTREAM_BOOTSTRAP",
        metavar="HOST:PORT",
        help="Address of any node of the cluster; several are separated by commas.",
        show_default=f"the cluster that `cluster up` runs here, else {DEFAULT_BOOTSTRAP}",
    ),
]
Properties = Annotated[
    list[str] | None,
    typer.Option(
        "-X",
        metavar="KEY=VALUE",
        help="A client property by Kafka's name, such as security.protocol=SASL_SSL; repeatable.",
    ),
]
Profile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        envvar="MILLSTREAM_PROFILE",
        metavar="NAME",
        help="Named properties, from profiles.yaml in ~/.config/millstream.",
    ),
]


@dataclass(frozen=True, slots=True)
class Target:
    bootstrap: str
    properties: Mapping[str, str]
    given: frozenset[str] = frozenset()
    """The properties given on the command line itself."""

    def settings(self) -> "ClusterSettings":
        """Settings for our own connections; raises `Unreachable` at once if no address accepts one."""
        from millstream.client.wire.properties import addresses, security_of
        from millstream.client.wire.settings import ClusterSettings

        self._require_known()
        self.require_listener()
        return ClusterSettings(
            addresses(self.bootstrap),
            security_of(self.properties),
            self.properties.get("client.id", _CLIENT_ID),
            asks_node_itself=True,
            connect_timeout_s=CONNECT_TIMEOUT_S,
            request_timeout_s=_REPLY_S,
            api_timeout_s=_PATIENCE_S,
        )

    def cluster(self) -> "Cluster":
        """A cluster whose nodes each answer for themselves, even if clients see only one of them."""
        from millstream.client.wire.cluster import Cluster

        return Cluster(self.settings())

    def admin(self) -> "Admin":
        from millstream.client.admin.face import Admin

        self._require_known()
        self.require_listener()
        return Admin(self.bootstrap, client_id=self._client_id, extra=self._security)

    def queue_admin(self) -> "QueueAdmin":
        from millstream.client.queue_admin import QueueAdmin

        self._require_known()
        self.require_listener()
        return QueueAdmin(self.bootstrap, client_id=self._client_id, extra=self._security)

    def queue_consumer(self, topic: str, group: str) -> "QueueConsumer":
        from millstream.client.queue_consumer import QueueConsumer

        self._require_known()
        self.require_listener()
        return QueueConsumer(topic, group, self.bootstrap, client_id=self._client_id, extra=self._security)

    @property
    def _client_id(self) -> str:
        return self.properties.get("client.id", _CLIENT_ID)

    @property
    def _security(self) -> dict[str, str]:
        return {name: value for name, value in self.properties.items() if name.startswith(_SECURITY)}

    def producer(self, **settings: Any) -> "Producer":
        from confluent_kafka import KafkaException, Producer

        # Maps keys to the same partitions as Java's client and `Producer`; librdkafka's default hash differs.
        defaults = {"partitioner": "murmur2_random"}
        try:
            return Producer({**defaults, **self._librdkafka(), **settings})
        except KafkaException as error:
            raise UsageError(f"-X: {error.args[0].str()}") from error

    def consumer(self, **settings: Any) -> "Consumer":
        from confluent_kafka import Consumer, KafkaException

        # librdkafka requires a group name even from a reader that joins no group.
        defaults: dict[str, Any] = {
            "group.id": _CLIENT_ID,
            "enable.auto.commit": False,
            "allow.auto.create.topics": False,
            # If a member's first metadata request is lost, it joins at librdkafka's next refresh.
            "topic.metadata.refresh.interval.ms": 5_000,
        }
        try:
            return Consumer({**defaults, **self._librdkafka(), **settings})
        except KafkaException as error:
            raise UsageError(f"-X: {error.args[0].str()}") from error

    def _librdkafka(self) -> dict[str, Any]:
        from millstream.client.wire.properties import librdkafka_security

        self.require_listener()
        others = {name: value for name, value in self.properties.items() if not name.startswith(_SECURITY)}
        return {
            "client.id": _CLIENT_ID,
            "socket.connection.setup.timeout.ms": int(CONNECT_TIMEOUT_S * 1000),
            # librdkafka logs to standard error, where we print a single line.
            "log_level": 6 if debugging() else 0,
            **others,
            **librdkafka_security(self.properties),
            _SERVERS: self.bootstrap,
        }

    def _require_known(self) -> None:
        """Refuse properties on the command line that have no effect here. A profile may hold any, for producers and
        consumers."""
        for name in sorted(self.given):
            if not name.startswith(_SECURITY) and name not in ("client.id", _SERVERS):
                raise UsageError(
                    f"-X {name}: this command knows client.id, security.*, sasl.* and ssl.* only"
                )

    def require_listener(self) -> None:
        """Fail at once if no address accepts a connection: librdkafka would retry until a time-out."""
        from millstream.client.errors import ConfigurationError
        from millstream.client.wire.properties import addresses

        reason = ""
        try:
            named = addresses(self.bootstrap)
        except ConfigurationError as error:
            raise UsageError(f"--bootstrap: {error}") from error
        for address in named:
            try:
                socket.create_connection(address, timeout=CONNECT_TIMEOUT_S).close()
            except OSError as error:
                reason = error.strerror or str(error)
            else:
                return
        raise Unreachable(self.bootstrap, reason)


def on_cluster(command: Command) -> Command:
    """Replace a command's parameter `target: Target` with the options that name a cluster."""
    signature = inspect.signature(command)
    parameters: list[inspect.Parameter] = []
    for each in signature.parameters.values():
        if each.name != "target":
            parameters.append(each)
            continue
        for name, kind in (("bootstrap", Bootstrap), ("properties", Properties), ("profile", Profile)):
            parameters.append(
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            )
    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]

    @wraps(command)
    def run(
        *, bootstrap: str | None, properties: list[str] | None, profile: str | None, **options: Any
    ) -> Any:
        return command(target=target_of(bootstrap, properties or (), profile), **options)

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run  # type: ignore[return-value]


def target_of(bootstrap: str | None, properties: Sequence[str], profile: str | None) -> Target:
    given = parse_pairs(properties, "-X")
    named = {**(_profile(profile) if profile else {}), **given}
    servers = named.pop(_SERVERS, None)
    if bootstrap is None:
        bootstrap = servers or running_local_cluster() or DEFAULT_BOOTSTRAP
    return Target(bootstrap, named, frozenset(given))


def delete_each(
    target: Target, kind: str, given: Sequence[str], contents: str, *, yes: bool, as_json: bool
) -> None:
    """Delete groups or topics. One that cannot be deleted is reported and skipped; an unreachable cluster raises."""
    from millstream.client.errors import ClientError

    names = list(dict.fromkeys(given))
    deleted: list[str] = []
    with target.admin() as admin:
        confirm(f"Delete {', '.join(names)} at {target.bootstrap} with {contents}?", yes=yes)
        delete = admin.delete_topic if kind == "topic" else admin.delete_group
        for name in names:
            try:
                delete(name)
                deleted.append(name)
            except ClientError as error:
                message, code = message_and_code(error)
                if code == ExitCode.UNREACHABLE:
                    raise
                print_error(message)
    if as_json:
        output.json_document({"deleted": deleted, "failed": [name for name in names if name not in deleted]})
    else:
        for name in deleted:
            output.line(f"deleted {kind} {name}")
    if len(deleted) < len(names):
        raise typer.Exit(ExitCode.FAILURE)


def _profile(name: str) -> dict[str, str]:
    import yaml

    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    file = Path(home) / "millstream" / "profiles.yaml"
    try:
        profiles = yaml.safe_load(file.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise UsageError(f"--profile {name}: {file} cannot be read: {error}") from error
    known = profiles if isinstance(profiles, dict) else {}
    if not isinstance(known.get(name), dict):
        raise UsageError(f"--profile {name}: {file} has no such profile; it has {', '.join(known) or 'none'}")
    return {str(key): _text(value) for key, value in known[name].items()}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def running_local_cluster() -> str | None:
    """The addresses of the newest local cluster that still runs, as --bootstrap takes them."""
    try:
        process, bootstrap = _file().read_text().split()
        os.kill(int(process), 0)
    except (OSError, ValueError):
        return None
    return bootstrap


@contextmanager
def known_as_running(bootstrap: str) -> Iterator[None]:
    """Publish the addresses until the end of the block; does nothing if the home directory is not writable."""
    file, words = _file(), f"{os.getpid()} {bootstrap}\n"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(words)
    except OSError:
        yield
        return
    try:
        yield
    finally:
        # Another cluster may have been started since.
        if file.exists() and file.read_text() == words:
            file.unlink()


def _file() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(home) / "millstream" / "local-cluster"
