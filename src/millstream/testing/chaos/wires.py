"""Networks of their own for nodes, so that some can be cut off: Linux namespaces, set up with iproute2 as root.

Packets are lost on their way by a neighbour entry that leads to nobody: silently, in one direction, and without any
further tool. Delay needs the kernel's netem.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence

_NOBODY = "02:00:00:00:00:01"


class NoNamespaces(Exception):
    """They cannot be made here; the message says why."""


class Wires:
    """Node `n` gets the address 10.a.b.n; this process reaches all of them from 10.a.b.254."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = list(numbers)
        # Two runs on one machine do not meet.
        self._tag = f"ms{os.getpid() % 0xFFFFF:x}"
        self._net = f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}"
        self.has_delay = False

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

    def _open(self) -> None:
        bridge = f"{self._tag}br"
        _ip("link", "add", bridge, "type", "bridge")
        _ip("addr", "add", f"{self._net}.254/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for number in self._numbers:
            space, outer = self._space(number), f"{self._tag}v{number}"
            _ip("netns", "add", space)
            _ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", outer, "master", bridge, "up")
            _ip("-n", space, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip("-n", space, "link", "set", "lo", "up")
        self.has_delay = self._try_delay()

    def close(self) -> None:
        for number in self._numbers:
            _run(("ip", "netns", "del", self._space(number)))
            _run(("ip", "link", "del", f"{self._tag}v{number}"))
        _run(("ip", "link", "del", f"{self._tag}br"))

    def address(self, number: int) -> str:
        return f"{self._net}.{number}"

    def prefix(self, number: int) -> list[str]:
        """Before a command, to run it as that node."""
        return ["ip", "netns", "exec", self._space(number)]

    def cut(self, source: int, target: int) -> None:
        """Nothing gets from `source` to `target` any more."""
        _ip(
            "-n", self._space(source), "neigh", "replace", self.address(target),
            "lladdr", _NOBODY, "dev", "eth0", "nud", "permanent",
        )  # fmt: skip

    def heal(self, source: int, target: int) -> None:
        _run(("ip", "-n", self._space(source), "neigh", "del", self.address(target), "dev", "eth0"))

    def delay(self, number: int, milliseconds: int) -> None:
        """Everything that the node sends takes so much longer; 0 ends it."""
        inside = (*self.prefix(number), "tc", "qdisc")
        if milliseconds:
            _check((*inside, "replace", "dev", "eth0", "root", "netem", "delay", f"{milliseconds}ms", "5ms"))
        else:
            _run((*inside, "del", "dev", "eth0", "root"))

    def _try_delay(self) -> bool:
        if shutil.which("tc") is None:
            return False
        try:
            self.delay(self._numbers[0], 1)
        except NoNamespaces:
            return False
        self.delay(self._numbers[0], 0)
        return True

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
