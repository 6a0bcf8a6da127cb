"""Carries frames between two network devices in this process, late and with loss: the kernel's netem is often
missing.
"""

import ctypes
import fcntl
import select
import socket
import struct
import threading
import time
from collections import deque
from random import Random

_ALL_PROTOCOLS = 0x0003
_SIOCETHTOOL = 0x8946
# ETHTOOL_STXCSUM, ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO
_OFFLOADS = (0x17, 0x1F, 0x24, 0x2C)
_LARGEST_FRAME = 65536
_LOOK_SECONDS = 0.05


class Relay:
    """Between `start` and `stop`, frames from one device are sent to the other."""

    def __init__(self, devices: tuple[str, str], delay_seconds: float, loss: float, random: Random) -> None:
        self._sockets = [_open(device) for device in devices]
        self._delay = delay_seconds
        self._loss = loss
        self._random = random
        self._waiting: deque[tuple[float, socket.socket, bytes]] = deque()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()
        for each in self._sockets:
            each.close()

    def _run(self) -> None:
        one, other = self._sockets
        while not self._is_over.is_set():
            until = self._waiting[0][0] - time.monotonic() if self._waiting else _LOOK_SECONDS
            readable, _, _ = select.select(self._sockets, (), (), min(max(until, 0.0), _LOOK_SECONDS))
            for source in readable:
                self._take(source, other if source is one else one)
            while self._waiting and self._waiting[0][0] <= time.monotonic():
                _, target, frame = self._waiting.popleft()
                try:
                    target.send(frame)
                except OSError:
                    # Lost, as frames are when a device has no room.
                    continue

    def _take(self, source: socket.socket, target: socket.socket) -> None:
        frame, address = source.recvfrom(_LARGEST_FRAME)
        # Frames that this process sends arrive here too.
        if address[2] != socket.PACKET_OUTGOING and self._random.random() >= self._loss:
            self._waiting.append((time.monotonic() + self._delay, target, frame))


def turn_offloads_off(device: str) -> None:
    """Frames must leave the device whole and with checksums: no later device adds them."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for command in _OFFLOADS:
            value = ctypes.create_string_buffer(struct.pack("II", command, 0))
            request = struct.pack("16sP", device.encode(), ctypes.addressof(value))
            fcntl.ioctl(control.fileno(), _SIOCETHTOOL, request)


def _open(device: str) -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
    opened.bind((device, 0))
    return opened
