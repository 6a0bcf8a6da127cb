"""Nodes killed in turn under MQTT load: deliveries go on, nothing acknowledged is lost, QoS 2 comes once and in order.

`MQTT_KILLS=30 pytest -s -m long tests/cluster/test_mqtt_kills.py` prints how long deliveries paused.
"""

import os
import sys
import threading
import time
from collections import Counter
from itertools import cycle
from pathlib import Path

import pytest

from millstream.protocol.mqtt.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel
from support.cluster import ClusterProcesses
from support.mqtt_client import RawMqtt
from support.waiting import wait_for

pytestmark = pytest.mark.long
_KILLS = int(os.environ.get("MQTT_KILLS", "4"))
_SESSION = {"clean": False, "expiry_s": 3600}


class _Device:
    """A client whose session is kept, at whichever node takes it; `work` is done until it is told to end."""

    def __init__(self, nodes: list, client_id: str, work) -> None:
        self._nodes = cycle(nodes)
        self._client_id = client_id
        self._work = work
        self.is_over = threading.Event()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self.is_over.is_set():
            try:
                with RawMqtt(next(self._nodes), patience_s=8.0) as client:
                    client.connect(self._client_id, **_SESSION)
                    self._work(client, self.is_over)
            except (OSError, AssertionError, IndexError):
                # The node was killed, or does not serve yet.
                time.sleep(0.05)

    def end(self) -> None:
        self.is_over.set()
        self._thread.join(120)


class _Publishing:
    """One message at a time, QoS 1 and 2 in turn, sent again until it is acknowledged."""

    def __init__(self) -> None:
        self.acknowledged: list[int] = []
        self._received = False

    def work(self, client: RawMqtt, is_over: threading.Event) -> None:
        while not is_over.is_set():
            number = len(self.acknowledged)
            qos, packet_id = 1 + number % 2, number % 60_000 + 1
            if not self._received:
                client.send(Publish(f"load/{qos}", b"%d" % number, qos, packet_id))
                heard = client.hear()
                if qos == 1:
                    assert heard == Puback(packet_id), heard
                else:
                    assert heard == Pubrec(packet_id), heard
            if qos == 2:
                self._received = True
                client.send(Pubrel(packet_id))
                assert isinstance(client.hear(), Pubcomp)
            self._received = False
            self.acknowledged.append(number)


class _Subscribing:
    def __init__(self) -> None:
        self.got: list[tuple[float, int]] = []
        self.subscribed = threading.Event()
        self._unreleased: set[int] = set()

    def work(self, client: RawMqtt, is_over: threading.Event) -> None:
        if not self.subscribed.is_set():
            client.subscribe("load/+", qos=2)
            self.subscribed.set()
        while not is_over.is_set():
            heard = client.hear()
            if isinstance(heard, Pubrel):
                self._unreleased.discard(heard.packet_id)
                client.send(Pubcomp(heard.packet_id))
                continue
            assert isinstance(heard, Publish)
            if heard.qos == 1 or heard.packet_id not in self._unreleased:
                self.got.append((time.monotonic(), int(heard.payload)))
            if heard.qos == 2:
                self._unreleased.add(heard.packet_id)
            client.send((Puback if heard.qos == 1 else Pubrec)(heard.packet_id))


def test_deliveries_go_on_when_nodes_are_killed(tmp_path: Path) -> None:
    settings = {"mqtt.listen": "127.0.0.1:0", "replication.default_replication_factor": "3"}
    cluster = ClusterProcesses(tmp_path, 3, settings=settings).start()
    publishing, subscribing = _Publishing(), _Subscribing()
    pauses = []
    try:
        nodes = list(cluster.nodes.values())
        reader = _Device(nodes, "reader", subscribing.work)
        assert subscribing.subscribed.wait(120)
        writer = _Device(nodes[1:] + nodes[:1], "writer", publishing.work)
        for _, victim in zip(range(_KILLS), cycle(nodes), strict=False):
            before = len(subscribing.got)
            wait_for(
                lambda: len(subscribing.got), lambda count, least=before: count > least + 50, "deliveries"
            )
            killed = time.monotonic()
            victim.kill()
            newest = len(publishing.acknowledged) + 2
            wait_for(
                lambda: max((number for _, number in subscribing.got), default=-1),
                lambda number, least=newest: number >= least,
                "a message that was sent after the kill",
            )
            # What was sent before the kill and was under way does not count.
            pauses.append(next(at for at, number in subscribing.got if number >= newest) - killed)
            victim.start()
        writer.end()
        acknowledged = publishing.acknowledged
        wait_for(
            lambda: len({number for _, number in subscribing.got}),
            lambda count: count >= len(acknowledged),
            "all that was acknowledged",
        )
        reader.end()
    finally:
        cluster.close()
    came = Counter(number for _, number in subscribing.got)
    assert set(acknowledged) <= set(came)
    assert [number for number in acknowledged if number % 2 and came[number] > 1] == []
    for remainder in (0, 1):
        order = [number for number in came if number % 2 == remainder]
        assert order == sorted(order)
    pauses.sort()
    report = f"{len(pauses)} kills, {len(acknowledged)} messages; pauses of deliveries in s: {pauses}\n"
    sys.stdout.write(report)
