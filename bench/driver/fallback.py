"""The driver for machines without a C compiler: the same command line and JSON, on confluent-kafka.

Python's share of each message makes the client the limit, so its throughput says little about the broker; the
mock cluster is limited to its default of 4 partitions, the only number it can be given from Python.
"""

import argparse
import json
import resource
import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

MOCK_PARTITIONS = 4
_TIMEOUT_SECONDS = 60.0


class _Deliveries:
    """Counts delivery reports; a message's number travels as the callback's closure."""

    def __init__(self) -> None:
        self.errors = 0
        self.latencies_ms: list[float] = []

    def counted(self, error: KafkaError | None, _message: Message) -> None:
        self.errors += error is not None

    def timed(self, planned: float, error: KafkaError | None) -> None:
        self.errors += error is not None
        self.latencies_ms.append((time.perf_counter() - planned) * 1e3)


def _offsets(client: Consumer, topic: str, partitions: int) -> list[tuple[int, int]]:
    pairs = []
    for partition in range(partitions):
        pair = client.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT_SECONDS)
        if pair is None:
            raise SystemExit(
                f"driver: no offsets of {topic} partition {partition} within {_TIMEOUT_SECONDS} s"
            )
        pairs.append(pair)
    return pairs


def _consumer(options: argparse.Namespace) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": options.bootstrap,
            "group.id": "millstream-bench",
            "enable.auto.commit": False,
            "queued.min.messages": 1_000_000,
            "fetch.wait.max.ms": 100,
        }
    )


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _send(options: argparse.Namespace, producers: list[Producer], deliveries: _Deliveries) -> int:
    payload = bytes(b"0123456789abcdef"[i * 7 % 16] for i in range(options.size))
    start = time.perf_counter()
    deadline = start + options.seconds if options.seconds else float("inf")
    sent = 0
    while (not options.count or sent < options.count) and time.perf_counter() < deadline:
        producer = producers[sent % len(producers)]
        report = deliveries.counted
        if options.rate:
            planned = start + sent / options.rate
            while (early := planned - time.perf_counter()) > 0:
                producer.poll(early)

            def report(error: KafkaError | None, _message: Message, planned: float = planned) -> None:
                deliveries.timed(planned, error)

        try:
            producer.produce(options.topic, payload, partition=sent % options.partitions, on_delivery=report)
            sent += 1
        except BufferError:
            producer.poll(0.001)
        producer.poll(0)
    for producer in producers:
        producer.flush(_TIMEOUT_SECONDS)
    return sent


def _end_offsets(watcher: Consumer, options: argparse.Namespace, expected: int) -> int:
    """The partitions' ends together, when they are as expected: with acks=1, followers may come later."""
    deadline = time.perf_counter() + _TIMEOUT_SECONDS
    while True:
        ends = sum(high for _low, high in _offsets(watcher, options.topic, options.partitions))
        if ends >= expected or time.perf_counter() > deadline:
            return ends
        time.sleep(0.005)


def _percentiles(latencies_ms: list[float]) -> dict[str, float]:
    ordered = sorted(latencies_ms[len(latencies_ms) // 10 :])
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}
    return {name: ordered[min(int(share * len(ordered)), len(ordered) - 1)] for name, share in shares.items()}


def produce(options: argparse.Namespace) -> dict[str, object]:
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": options.bootstrap,
        "acks": options.acks,
        "linger.ms": options.linger_ms,
        "batch.size": options.batch_bytes,
        "compression.type": options.codec,
        "enable.idempotence": bool(options.idempotence),
        "socket.nagle.disable": True,
    }
    producers = [Producer(settings) for _ in range(options.handles)]
    watcher = _consumer(options)
    before = sum(high for _low, high in _offsets(watcher, options.topic, options.partitions))
    deliveries = _Deliveries()
    cpu, start = _cpu_seconds(), time.perf_counter()
    sent = _send(options, producers, deliveries)
    seconds = time.perf_counter() - start
    cpu = _cpu_seconds() - cpu
    after = _end_offsets(watcher, options, before + sent)
    watcher.close()
    result: dict[str, object] = {
        "messages": sent,
        "bytes": sent * options.size,
        "seconds": seconds,
        "errors": deliveries.errors,
        "stored": after - before,
        "client_cpu_seconds": cpu,
    }
    if options.rate:
        result["latency_ms"] = _percentiles(deliveries.latencies_ms)
    return result


def consume(options: argparse.Namespace) -> dict[str, object]:
    client = _consumer(options)
    bounds = _offsets(client, options.topic, options.partitions)
    expected = sum(high - low for low, high in bounds)
    messages = size = errors = 0
    cpu, start = _cpu_seconds(), time.perf_counter()
    for number in range(1, options.passes + 1):
        client.assign([TopicPartition(options.topic, p, OFFSET_BEGINNING) for p in range(options.partitions)])
        while messages < expected * number and not errors:
            batch = client.consume(10_000, timeout=_TIMEOUT_SECONDS)
            errors += not batch
            for message in batch:
                errors += message.error() is not None
                messages += 1
                size += len(message.value() or b"")
    seconds = time.perf_counter() - start
    cpu = _cpu_seconds() - cpu
    client.close()
    return {
        "messages": messages,
        "bytes": size,
        "seconds": seconds,
        "errors": errors,
        "stored": expected * options.passes,
        "client_cpu_seconds": cpu,
    }


def mock() -> None:
    owner = Producer({"test.mock.num.brokers": 1})
    brokers = owner.list_topics(timeout=_TIMEOUT_SECONDS).brokers.values()
    print(json.dumps({"bootstrap": ",".join(f"{node.host}:{node.port}" for node in brokers)}), flush=True)
    for line in sys.stdin:
        _word, topic, partitions = line.split()
        error = ""
        if int(partitions) != MOCK_PARTITIONS:
            error = f"without the native driver the mock cluster has {MOCK_PARTITIONS} partitions a topic"
        else:
            owner.list_topics(topic, timeout=_TIMEOUT_SECONDS)
        print(json.dumps({"error": error}), flush=True)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.driver.fallback")
    parser.add_argument("mode", choices=("produce", "consume", "mock"))
    for name in ("bootstrap", "topic"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--acks", default="all")
    parser.add_argument("--codec", default="none")
    numbers = {"partitions": 1, "size": 100, "count": 0, "batch-bytes": 1_000_000, "idempotence": 0}
    # Python always copies the message and feeds from one thread; the native driver has the choice.
    for name, default in {**numbers, "handles": 1, "feeders": 1, "copy": 1, "passes": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, fraction in {"seconds": 0.0, "rate": 0.0, "linger-ms": 5.0}.items():
        parser.add_argument(f"--{name}", type=float, default=fraction)
    return parser.parse_args(arguments)


def main() -> int:
    options = _options(sys.argv[1:])
    if options.mode == "mock":
        mock()
        return 0
    result = produce(options) if options.mode == "produce" else consume(options)
    print(json.dumps(result))
    return 0 if result["errors"] == 0 and result["stored"] == result["messages"] else 1


if __name__ == "__main__":
    sys.exit(main())
