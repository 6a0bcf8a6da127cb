"""A network for each node, so that nodes can be cut off: Linux namespaces, set up with iproute2 as root.

A cut is a neighbour entry with an unused address: frames are lost silently, in one direction, without a further tool.
For delay and loss a node's wire is taken off the bridge, and a relay in this process put in between.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from random import Random

from millstream.testing.chaos.relay import Relay, turn_offloads_off

_NOBODY = "02:00:00:00:00:01"


class NoNamespaces(Exception):
    """This machine cannot make them; the message says why."""


class Wires:
    """Node `n` gets the address 10.a.b.n; this process reaches all of them from 10.a.b.254."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = list(numbers)
        # So that two runs on one machine do not collide.
        self._tag = f"ms{os.getpid() % 0xFFFFF:x}"
        self._net = f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}"
        self._relays: dict[int, Relay] = {}

    def open(self) -> None:
        if os.geteuid() != 0:
            raise NoNamespaces("network namespaces need root")
        if shutil.which("ip") is None:
            raise NoNamespaces("network namespaces need iproute2, which is not installed")
        try:
            self._open()
        except NoNamespaces:
            self.close()
            raise
        except OSError as error:
            self.close()
            raise NoNamespaces(f"network devices cannot be set up: {error}") from error

    def _open(self) -> None:
        bridge = f"{self._tag}br"
        _ip("link", "add", bridge, "type", "bridge")
        _ip("addr", "add", f"{self._net}.254/24", "dev", bridge)
        turn_offloads_off(bridge)
        _ip("link", "set", bridge, "up")
        for number in self._numbers:
            space, outer, inner = self._space(number), self._wire(number), f"{self._tag}i{number}"
            _ip("netns", "add", space)
            _ip("link", "add", outer, "type", "veth", "peer", "name", inner)
            turn_offloads_off(inner)
            _ip("link", "set", inner, "netns", space, "name", "eth0")
            _ip("link", "set", outer, "master", bridge, "up")
            _ip("-n", space, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip("-n", space, "link", "set", "lo", "up")
            # The way back to the bridge for relayed frames.
            _ip("link", "add", self._detour(number), "type", "veth", "peer", "name", f"{self._tag}e{number}")
            _ip("link", "set", f"{self._tag}e{number}", "master", bridge, "up")
            _ip("link", "set", self._detour(number), "up")
            for device in (outer, self._detour(number)):
                # This machine does not answer there for its other addresses.
                Path(f"/proc/sys/net/ipv4/conf/{device}/arp_ignore").write_text("1")

    def close(self) -> None:
        for number in self._numbers:
            self.restore(number)
            _run(("ip", "netns", "del", self._space(number)))
            _run(("ip", "link", "del", self._wire(number)))
            _run(("ip", "link", "del", self._detour(number)))
        _run(("ip", "link", "del", f"{self._tag}br"))

    def address(self, number: int) -> str:
        return f"{self._net}.{number}"

    def prefix(self, number: int) -> list[str]:
        """The prefix that runs a command as that node."""
        return ["ip", "netns", "exec", self._space(number)]

    def cut(self, source: int, target: int) -> None:
        """Cut the way from `source` to `target`."""
        _ip(
            "-n", self._space(source), "neigh", "replace", self.address(target),
            "lladdr", _NOBODY, "dev", "eth0", "nud", "permanent",
        )  # fmt: skip

    def heal(self, source: int, target: int) -> None:
        _run(("ip", "-n", self._space(source), "neigh", "del", self.address(target), "dev", "eth0"))

    def disturb(self, number: int, delay_seconds: float, loss: float, random: Random) -> None:
        """Delay everything from and to the node by so much, and lose that share of it."""
        _ip("link", "set", self._wire(number), "nomaster")
        relay = Relay((self._wire(number), self._detour(number)), delay_seconds, loss, random)
        self._relays[number] = relay
        relay.start()

    def restore(self, number: int) -> None:
        relay = self._relays.pop(number, None)
        if relay is not None:
            relay.stop()
            _ip("link", "set", self._wire(number), "master", f"{self._tag}br")

    def _wire(self, number: int) -> str:
        return f"{self._tag}v{number}"

    def _detour(self, number: int) -> str:
        return f"{self._tag}d{number}"

    def _space(self, number: int) -> str:
        return f"{self._tag}n{number}"


def _ip(*arguments: str) -> None:
    _check(("ip", *arguments))


def _check(command: Sequence[str]) -> None:
    done = _run(command)
    if done.returncode != 0:
        raise NoNamespaces(f"{' '.join(command)}: {done.stderr.decode(errors='replace').strip()}")


def _run(command: Sequence[str]) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(command, capture_output=True, check=False)
