"""`millstream serve`: start a node and run it until it is stopped."""

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.errors import CommandError
from millstream.cli.options import parse_address
from millstream.cli.settings import settings_for
from millstream.config.errors import ConfigError
from millstream.config.proxy_settings import proxy_variables
from millstream.config.settings import Settings

if TYPE_CHECKING:
    from millstream.doors.attached import Attach


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Routing(StrEnum):
    DIRECT = "direct"
    PROXY = "proxy"


class LogFormat(StrEnum):
    AUTO = "auto"
    TEXT = "text"
    JSON = "json"


def command(
    data: Annotated[
        Path | None,
        typer.Option("--data", "-d", metavar="DIR", help="Directory for everything the node stores."),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen", "-l", metavar="HOST:PORT", help="Address for Kafka clients; port 0 takes a free one."
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            "--http",
            metavar="HOST:PORT",
            help="Address for HTTP: messages, /metrics, /health. Without it there is no HTTP.",
        ),
    ] = None,
    mqtt: Annotated[
        str | None,
        typer.Option(
            "--mqtt", metavar="HOST:PORT", help="Address for MQTT clients. Without it there is no MQTT."
        ),
    ] = None,
    mqtt_ws: Annotated[
        str | None, typer.Option("--mqtt-ws", metavar="HOST:PORT", help="The same for MQTT over WebSocket.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", "-c", metavar="FILE", help="YAML file; `millstream config show` lists its keys."
        ),
    ] = None,
    node_id: Annotated[
        int | None, typer.Option("--node-id", min=0, help="Number of this node in its cluster.")
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            "--seeds",
            metavar="HOST:PORT,...",
            help="Addresses of the cluster's first nodes, this one among them, the same on each.",
        ),
    ] = None,
    node_listen: Annotated[
        str | None,
        typer.Option(
            "--node-listen",
            metavar="HOST:PORT",
            help="Address for other nodes; else 10000 above the port for clients, or a free port.",
        ),
    ] = None,
    client_routing: Annotated[
        Routing | None,
        typer.Option(
            "--client-routing",
            help="Tell clients which nodes lead (direct), or of this node only, which forwards (proxy). A topic may set"
            " client.routing for itself.",
        ),
    ] = None,
    roles: Annotated[
        str | None,
        typer.Option(
            "--roles",
            metavar="ROLE,...",
            help="broker,controller,gateway by default; gateway alone is an HTTP gateway to the nodes in --seeds.",
        ),
    ] = None,
    log_level: Annotated[LogLevel | None, typer.Option("--log-level", help="How much to log.")] = None,
    log_format: Annotated[
        LogFormat | None,
        typer.Option("--log-format", help="Log for people, for machines, or by where it goes."),
    ] = None,
) -> None:
    """Start a node. SIGTERM or Ctrl-C stops it cleanly.

    What a flag does not say is taken from MILLSTREAM_<SECTION>_<KEY> in the environment, then from the
    file, then from the defaults.

    \b
    Examples:
      millstream serve --data ./data
      millstream serve --data ./data --listen 0.0.0.0:9092 --http 0.0.0.0:8080
      millstream serve --data ./data --mqtt 0.0.0.0:1883 --mqtt-ws 0.0.0.0:8083
      millstream serve --data ./1 --node-id 1 --listen n1:9092 --seeds n1:9092,n2:9092,n3:9092
      millstream serve --roles gateway --seeds n1:9092,n2:9092 --http 0.0.0.0:8080
      MILLSTREAM_STORAGE_RETENTION_TIME=2d millstream serve --config millstream.yaml
    """
    flags: dict[str, object] = {
        "broker.id": node_id,
        "broker.client_routing": client_routing,
        "broker.roles": roles,
        "log.level": log_level,
        "log.format": log_format,
        "broker.node_listen": node_listen,
        "mqtt.listen": mqtt,
        "mqtt.websocket_listen": mqtt_ws,
    }
    if data is not None:
        flags["broker.data_dir"] = str(data)
    if listen is not None:
        flags["broker.host"], flags["broker.port"] = parse_address(listen, "--listen")
    if http is not None:
        flags["http.host"], flags["http.port"] = parse_address(http, "--http")
    if seeds is not None:
        flags["cluster.bootstrap_servers"] = seeds
    settings = _settings(config, flags)
    doors = _doors(settings)
    if settings.is_gateway_alone:
        from millstream.broker import gateway_process

        raise typer.Exit(gateway_process.run(settings, doors))

    from millstream.broker.process import CannotStart, run

    try:
        raise typer.Exit(run(settings, attach=doors))
    except CannotStart as error:
        raise CommandError(str(error)) from error


def _doors(settings: Settings) -> "list[Attach]":
    doors: list[Attach] = []
    if settings.is_gateway_alone or ("gateway" in settings.broker.roles and settings.http.port is not None):
        from millstream.gateway.gateway import attach

        doors.append(attach)
    if settings.mqtt.listen is not None or settings.mqtt.websocket_listen is not None:
        from millstream.mqtt.attach import attach_mqtt

        try:
            doors.append(attach_mqtt(settings))
        except ConfigError as error:
            raise CommandError(str(error)) from error
    return doors


def _settings(config: Path | None, flags: dict[str, object]) -> Settings:
    """A standalone gateway also takes the plain variables (PORT, BROKER_SERVICE) usual in such deployments."""
    given = {name: value for name, value in flags.items() if value is not None}
    plain = proxy_variables(os.environ)
    try:
        settings = settings_for(config, given)
    except CommandError:
        if not plain:
            raise
        # These variables may name the brokers that a standalone gateway needs.
        settings = settings_for(config, {**plain, **given})
    return settings_for(config, {**plain, **given}) if settings.is_gateway_alone and plain else settings
