"""Options that several commands share, and the parsing of their values."""

from collections.abc import Sequence
from typing import Annotated

import typer

from millstream.cli.errors import UsageError

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="MILLSTREAM_BOOTSTRAP",
        metavar="HOST:PORT",
        help="Address of any node of the cluster; several are separated by commas.",
    ),
]
DEFAULT_BOOTSTRAP = "localhost:9092"

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def parse_pairs(pairs: Sequence[str], option: str) -> dict[str, str]:
    """`KEY=VALUE` words as a mapping; a value may hold further equals signs."""
    parsed: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{option} {pair!r} is not of the form KEY=VALUE")
        parsed[name.strip()] = value
    return parsed


def parse_address(address: str, option: str) -> tuple[str, int]:
    """`HOST:PORT` (an IPv6 host in brackets) as a pair; port 0 asks the system for a free one."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"{option} {address!r} is not of the form HOST:PORT, such as 127.0.0.1:9092")
    return host.removeprefix("[").removesuffix("]"), int(port)
