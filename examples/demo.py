"""Starts a node and streams GPU telemetry through it, with an ordinary Kafka client on both sides.

Run by `make demo`. Ctrl-C ends it; DEMO_SECONDS=n ends it after n seconds.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

TOPIC = "gpu-telemetry"
PARTITIONS = 4
GPUS = 8
MESSAGES_PER_SECOND = 500
PLAIN_REPORT_SECONDS = 2.0
START_TIMEOUT_S = 30.0
CATCH_UP_S = 3.0


class DemoFailed(Exception):
    """The demo cannot go on; the text says why."""


@dataclass(slots=True)
class Node:
    process: "subprocess.Popen[bytes]"
    listen: str
    http: str

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


@dataclass(slots=True)
class Gpu:
    utilisation: float = 0.0
    temperature: float = 0.0
    power: float = 0.0
    messages: int = 0


@dataclass(slots=True)
class Traffic:
    """What the two client threads have seen; each field has one writer."""

    produced: int = 0
    acknowledged: int = 0
    refused: int = 0
    consumed: int = 0
    problem: str = ""
    ended_at: float | None = None
    gpus: dict[str, Gpu] = field(default_factory=dict)


Client = Callable[[str, Traffic, threading.Event], None]


def main() -> int:
    seconds = demo_seconds()
    # A service manager's stop and Ctrl-C take the same way out, also where a shell had SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="millstream-demo-") as directory:
        try:
            node = start_node(Path(directory))
        except DemoFailed as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        try:
            return run(node, seconds)
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            print("\nstopping the node ...", flush=True)
            node.stop()


def demo_seconds() -> float | None:
    text = os.environ.get("DEMO_SECONDS", "").strip()
    try:
        return float(text) if text else None
    except ValueError:
        raise SystemExit(f"error: DEMO_SECONDS={text!r} is not a number of seconds") from None


def start_node(directory: Path) -> Node:
    log_file = directory / "node.log"
    command = [sys.executable, "-m", "millstream", "serve", "--data", str(directory / "data")]
    command += ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log-format", "json"]
    with log_file.open("wb") as log:
        # A process group of its own: Ctrl-C reaches only the demo, which then stops the node.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        for line in log_file.read_bytes().splitlines(keepends=True):
            if b'"ready"' in line and line.endswith(b"\n"):
                ready = json.loads(line)
                return Node(process, ready["listen"], ready["http"])
        time.sleep(0.02)
    process.kill()
    process.wait()
    raise DemoFailed(f"the node did not start:\n{log_file.read_text(errors='replace')}")


def run(node: Node, seconds: float | None) -> int:
    print("Millstream is running.\n")
    print(f"  Kafka clients   {node.listen}")
    print(f"  metrics         http://{node.http}/metrics")
    print(f"  health          http://{node.http}/health\n")
    print("Try in another terminal:\n")
    print(f"  .venv/bin/millstream consume {TOPIC} --bootstrap {node.listen} --from end")
    print(f"  .venv/bin/millstream topic describe {TOPIC} --bootstrap {node.listen}\n")
    print(
        f"{'Ctrl-C stops it.' if seconds is None else f'Stops by itself after {seconds:g} s.'}\n", flush=True
    )
    traffic = Traffic()
    stop = threading.Event()
    threads: list[threading.Thread] = []
    try:
        create_topic(node.listen)
        for target in (produce, consume):
            thread = threading.Thread(
                target=guarded, args=(target, node.listen, traffic, stop), name=target.__name__
            )
            thread.start()
            threads.append(thread)
        show(node, traffic, seconds)
    except KeyboardInterrupt:
        pass
    except KafkaException as error:
        traffic.problem = str(error.args[0])
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    return report(node, traffic, interrupted_early=not threads)


def create_topic(bootstrap: str) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    client.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS)])[TOPIC].result(15)


def guarded(client: Client, bootstrap: str, traffic: Traffic, stop: threading.Event) -> None:
    """A client that fails ends the demo with its reason instead of leaving half of it running."""
    try:
        client(bootstrap, traffic, stop)
    except KafkaException as error:
        traffic.problem = str(error.args[0])


def produce(bootstrap: str, traffic: Traffic, stop: threading.Event) -> None:
    client = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 5, "compression.type": "lz4", "log_level": 0}
    )
    walk = [random.uniform(20, 90) for _ in range(GPUS)]

    def delivered(error: KafkaError | None, message: Message) -> None:
        del message
        if error is None:
            traffic.acknowledged += 1
        else:
            traffic.refused += 1
            traffic.problem = error.str()

    started = time.monotonic()
    while not stop.is_set():
        index = traffic.produced % GPUS
        walk[index] = min(100.0, max(0.0, walk[index] + random.gauss(0, 2)))
        client.produce(TOPIC, key=f"gpu-{index}", value=sample(index, walk[index]), on_delivery=delivered)
        traffic.produced += 1
        client.poll(0)
        stop.wait(max(0.0, started + traffic.produced / MESSAGES_PER_SECOND - time.monotonic()))
    client.flush(10)


def sample(index: int, utilisation: float) -> bytes:
    reading = {
        "timestamp": time.time(),
        "gpu": f"gpu-{index}",
        "host": f"node-{index // 4 + 1}",
        "utilisation_percent": round(utilisation, 1),
        "temperature_c": round(32 + utilisation * 0.45 + random.gauss(0, 0.5), 1),
        "power_w": round(60 + utilisation * 3.4 + random.gauss(0, 4), 1),
        "memory_used_mb": round(4096 + utilisation * 600),
    }
    return json.dumps(reading).encode()


def consume(bootstrap: str, traffic: Traffic, stop: threading.Event) -> None:
    client = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "demo", "enable.auto.commit": False, "log_level": 0}
    )
    client.assign([TopicPartition(TOPIC, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
    try:
        while not stop.is_set() or catching_up(traffic):
            for message in client.consume(500, timeout=0.1):
                if message.error() is None:
                    take(message.value() or b"{}", traffic)
    finally:
        client.close()


def catching_up(traffic: Traffic) -> bool:
    """After the end, read on until everything acknowledged has come back, but not for ever."""
    if traffic.ended_at is None:
        traffic.ended_at = time.monotonic()
    behind = traffic.consumed + traffic.refused < traffic.produced
    return behind and time.monotonic() < traffic.ended_at + CATCH_UP_S


def take(value: bytes, traffic: Traffic) -> None:
    reading = json.loads(value)
    gpu = traffic.gpus.setdefault(reading["gpu"], Gpu())
    gpu.utilisation = reading["utilisation_percent"]
    gpu.temperature = reading["temperature_c"]
    gpu.power = reading["power_w"]
    gpu.messages += 1
    traffic.consumed += 1


def show(node: Node, traffic: Traffic, seconds: float | None) -> None:
    console = Console()
    started = time.monotonic()

    def over() -> bool:
        elapsed = time.monotonic() - started
        return (
            node.process.poll() is not None
            or bool(traffic.problem)
            or (seconds is not None and elapsed >= seconds)
        )

    if console.is_terminal:
        with Live(console=console, refresh_per_second=5, transient=True) as live:
            while not over():
                live.update(picture(traffic, time.monotonic() - started))
                time.sleep(0.2)
        console.print(picture(traffic, time.monotonic() - started))
        return
    next_report = started + PLAIN_REPORT_SECONDS
    while not over():
        time.sleep(0.1)
        if time.monotonic() >= next_report:
            next_report += PLAIN_REPORT_SECONDS
            print(summary(traffic, time.monotonic() - started), flush=True)


def summary(traffic: Traffic, elapsed_s: float) -> str:
    rate = traffic.consumed / elapsed_s if elapsed_s else 0
    return (
        f"{elapsed_s:5.0f} s  produced {traffic.produced:,}  on disk {traffic.acknowledged:,}"
        f"  consumed {traffic.consumed:,}  ({rate:,.0f}/s)"
    )


def picture(traffic: Traffic, elapsed_s: float) -> Group:
    table = Table(title=f"topic {TOPIC}, as consumed", title_justify="left")
    for column in ("GPU", "utilisation %", "temperature C", "power W", "messages"):
        table.add_column(column, justify="left" if column == "GPU" else "right")
    for name, gpu in sorted(traffic.gpus.items()):
        table.add_row(
            name, f"{gpu.utilisation:.1f}", f"{gpu.temperature:.1f}", f"{gpu.power:.0f}", f"{gpu.messages:,}"
        )
    return Group(table, Text(summary(traffic, elapsed_s)))


def report(node: Node, traffic: Traffic, *, interrupted_early: bool) -> int:
    if node.process.poll() is not None:
        print(f"error: the node ended by itself with exit code {node.process.returncode}", file=sys.stderr)
        return 1
    if traffic.problem:
        print(f"error: {traffic.problem}", file=sys.stderr)
        return 1
    if interrupted_early:
        return 0
    print(f"\n{traffic.acknowledged:,} messages written and acknowledged, {traffic.consumed:,} read back.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
