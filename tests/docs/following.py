"""Somebody who follows a document: runs its commands in a directory of their own, with other ports than it prints."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from docs.preludes import PYTHON, SHELL
from millstream.pipeline.stores.base import RollupQuery
from millstream.pipeline.stores.parquet.store import ParquetStore
from millstream.pipeline.stores.rows import Level, Resolution
from millstream.runtime.ports import ReservedPorts
from support.fleet_api import fill, uuid_of
from support.node import NodeProcess
from support.snippets import Block
from support.waiting import wait_for

BIN = Path(sys.executable).parent
NEEDS_SPARK = re.compile(r"millstream\.spark|awaitTermination|pipeline (run|report|backfill)|readStream")
# Where a job says that it writes to.
_STORE = re.compile(r"ready: .* -> parquet:(\S+)\n")
# What does not end by itself, and the words by which it shows that it works.
_GOES_ON = (
    (re.compile(r"^millstream serve"), re.compile(r'"ready"|\bready\b')),
    (re.compile(r"^millstream cluster up"), re.compile(r"\tpid\n(.*\n)+")),
    (re.compile(r"^millstream pipeline api"), re.compile("ready:")),
    (re.compile(r"^millstream pipeline run(?!.*--once)"), _STORE),
    (re.compile(r"^millstream telemetry stream(?!.*--loops 1)"), None),
    (re.compile(r"^curl -N"), re.compile("data:")),
)
_ENDLESS = re.compile(r"for message in (consumer|queue):|awaitTermination")
# Spark takes minutes to start, and to stop, where others compute.
_PATIENCE_S = 600
_HOSTS = ("n1", "n2", "n3", "n4")


class Reader:
    def __init__(self, directory: Path, node: NodeProcess, mqtt_port: int) -> None:
        self.directory = directory
        self._ports = ReservedPorts(8)
        fresh = iter(self._ports.ports)
        self.kafka, self.http, self.mqtt = node.bootstrap, node.http, f"127.0.0.1:{mqtt_port}"
        self._own = {name: f"127.0.0.1:{next(fresh)}" for name in ("kafka", "http", "mqtt", "api", *_HOSTS)}
        self._hosts = dict.fromkeys(_HOSTS[:3], node.bootstrap) | {"n4": self._own["n4"]}
        self._running: list[tuple[str, subprocess.Popen[bytes], Path]] = []
        self._count = 0
        self._finds_cluster = False

    @property
    def _environment(self) -> Mapping[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MILLSTREAM_")}
        own = {
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "HOME": str(self.directory), "PYTHONUNBUFFERED": "1",
            "MILLSTREAM_PIPELINE_API_PORT": self._own["api"].rpartition(":")[2],
            "MILLSTREAM_PIPELINE_BOOTSTRAP": self.kafka, "MILLSTREAM_PIPELINE_MASTER": "local[1]",
        }  # fmt: skip
        return inherited | own | ({} if self._finds_cluster else {"MILLSTREAM_BOOTSTRAP": self.kafka})

    def read(self, block: Block) -> None:
        if block.before == "a store" and not (self.directory / "srv").is_dir():
            (self.directory / "srv").mkdir()
            fill(self.directory / "srv")
            (self.directory / "srv" / "store").rename(self.directory / "telemetry")
        if block.language == "console":
            commands = [*SHELL.get(block.before or "", ()), *filter(block.is_run, block.commands)]
            self._run_all(commands, block)
        elif block.language == "python" and block.is_run():
            self._run_python(block)
        elif block.language == "yaml":
            self._check_settings(block)

    def close(self) -> None:
        """Stop what goes on, in reverse; it ends as it should."""
        ended = []
        try:
            for command, process, log in reversed(self._running):
                process.send_signal(signal.SIGTERM)
                ended.append((command, process.wait(_PATIENCE_S), log.read_text()[-2000:]))
        finally:
            for _, process, _ in self._running:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        assert [each for each in ended if each[1] not in (0, 1, -signal.SIGTERM, 128 + signal.SIGTERM)] == []

    def _run_all(self, commands: list[str], block: Block) -> None:
        awaited: list[Callable[[], None]] = []
        for command in commands:
            line = command.removesuffix("&").strip().replace(".venv/bin/", "")
            if "cluster remove 3 --force" in line:
                self._lose_node_3()
            if " serve " in line:
                self._move_in(line)
            if line.startswith("millstream pipeline run"):
                self._stop("millstream pipeline run")
            if " serve " not in line:
                self._wait_for_all(awaited)
            shows = next((words for start, words in _GOES_ON if start.search(line)), False)
            line = self._elsewhere(line)
            if line.startswith("millstream serve") and "--listen" not in line and "--roles" not in line:
                line += f" --listen {self.kafka}"
            if shows is False:
                done = self._start(line)
                assert done.wait(_PATIENCE_S) == 0, f"{block.place}: {command}\n{self._said()}"
                continue
            began = self._size("telemetry") if shows is None else 0
            process, log = self._start(f"exec {line}"), self._log
            self._running.append((command, process, log))

            def wait(
                shows: object = shows, process: object = process, log: Path = log, began: int = began
            ) -> None:
                self._wait_until(shows, process, log, began, f"{block.place}: {log.name}")  # type: ignore[arg-type]

            # Nodes of one cluster wait for each other.
            awaited.append(wait) if " serve " in line else wait()
            if "cluster up" in line:
                self._know_cluster(log)
        self._wait_for_all(awaited)

    @staticmethod
    def _wait_for_all(awaited: list[Callable[[], None]]) -> None:
        while awaited:
            awaited.pop(0)()

    def _wait_until(
        self,
        shows: "re.Pattern[str] | None",
        process: "subprocess.Popen[bytes]",
        log: Path,
        began: int,
        what: str,
    ) -> None:
        def works() -> bool:
            assert process.poll() is None, f"{what} ended\n{log.read_text()[-3000:]}"
            return self._size("telemetry") > began if shows is None else bool(shows.search(log.read_text()))

        wait_for(works, bool, what, _PATIENCE_S)
        if store := _STORE.search(log.read_text()):
            # A report needs rollups, which come some seconds after the points.
            path = self.directory / store[1]
            wait_for(lambda: has_rollups(path), bool, "rollups in the store", _PATIENCE_S)

    def _stop(self, start: str) -> None:
        """As Ctrl-C does, before the same is run in another way."""
        for each in [each for each in self._running if each[0].startswith(start)]:
            self._running.remove(each)
            each[1].send_signal(signal.SIGTERM)
            assert each[1].wait(_PATIENCE_S) == 0, each[2].read_text()[-2000:]

    def _run_python(self, block: Block) -> None:
        code = PYTHON.get(block.before or "", "") + block.code
        if "def test_" in block.code:
            file = self.directory / "test_snippet.py"
            file.write_text(code)
            process = self._start(
                f"{sys.executable} -m pytest -q -p no:cacheprovider -p no:schemathesis {file}"
            )
        else:
            file = self.directory / f"snippet_{block.line}.py"
            file.write_text(self._elsewhere(code))
            process = self._start(f"exec {sys.executable} {file}")
        if not _ENDLESS.search(block.code):
            assert process.wait(_PATIENCE_S) == 0, f"{block.place}\n{self._said()}"
            return
        log = self._log
        grows = "shouted" in block.code

        def works() -> bool:
            assert process.poll() is None, f"{block.place} ended\n{self._said()}"
            return self._size("shouted") > 0 if grows else "\n" in log.read_text().replace("WARN", "")

        try:
            wait_for(works, bool, block.place, _PATIENCE_S)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _check_settings(self, block: Block) -> None:
        if block.before == "profiles":
            file = self.directory / ".config" / "millstream" / "profiles.yaml"
            file.parent.mkdir(parents=True)
            file.write_text(block.code)
            process = self._start(f"millstream topic list --profile prod -X bootstrap.servers={self.kafka}"
                                  " -X security.protocol=PLAINTEXT")  # fmt: skip
        else:
            file = self.directory / f"settings_{block.line}.yaml"
            file.write_text(block.code)
            process = self._start(f"millstream config check {file}")
        assert process.wait(120) == 0, f"{block.place}\n{self._said()}"

    def _start(self, line: str) -> "subprocess.Popen[bytes]":
        self._count += 1
        self._log = self.directory / f"command-{self._count}.log"
        with self._log.open("wb") as log:
            return subprocess.Popen(
                ["bash", "-ec", line], cwd=self.directory, env=self._environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def _said(self) -> str:
        return self._log.read_text()[-3000:]

    def _elsewhere(self, code: str) -> str:
        """With this machine's addresses and directories, and a time that there is data of."""
        is_node = code.startswith("millstream serve")
        hosts = "|".join(_HOSTS)
        code = re.sub(rf"\b({hosts}):9092", lambda match: self._hosts[match[1]], code)
        code = re.sub(r"\b(localhost|127\.0\.0\.1|0\.0\.0\.0):9092", self.kafka, code)
        code = re.sub(r"\b(localhost|127\.0\.0\.1|0\.0\.0\.0):8080", self.http, code)
        code = re.sub(r"\b(localhost|127\.0\.0\.1):8090", self._own["api"], code)
        code = code.replace("127.0.0.1:1883", self.mqtt)
        code = code.replace('"localhost", 1883', '"127.0.0.1", ' + self.mqtt.rpartition(":")[2])
        if is_node:
            number = re.search(r"--node-id (\d)", code)
            code = code.replace("/var/lib/millstream", f"{self.directory}/node-{number[1] if number else 0}")
        for path in ("/srv/telemetry", "/backups/main", "/tmp/shouted"):
            code = code.replace(path, str(self.directory / Path(path).name))
        code = code.replace("GPU-5fd4f087-86f3-7a43-b711-4771313afc50", uuid_of(0, 0))
        return code.replace("2026-01-31T12:00:00Z", f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")

    def _move_in(self, line: str) -> None:
        """A node of the document's own, which the commands behind it then speak to."""
        if "--http" in line:
            self.http = self._own["http"]
        if "--mqtt" in line:
            self.mqtt = self._own["mqtt"]
        if "--roles gateway" in line or "--node-id 4" in line:
            return
        if "--seeds" in line:
            self._hosts = {name: self._own[name] for name in _HOSTS}
            self.kafka = self._own["n1"]
        else:
            self.kafka = self._own["kafka"]

    def _know_cluster(self, log: Path) -> None:
        rows = [line.split("\t") for line in log.read_text().splitlines() if re.match(r"\d+\t", line)]
        self._hosts |= {f"n{row[0]}": row[1] for row in rows}
        self.kafka = rows[0][1]
        self._pids = {int(row[0]): int(row[-1]) for row in rows}
        self._finds_cluster = True

    def _lose_node_3(self) -> None:
        os.kill(self._pids[3], signal.SIGKILL)

    def _size(self, topic: str) -> int:
        """How many messages a topic has; 0 where it is not there."""
        reader = Consumer({"bootstrap.servers": self.kafka, "group.id": "docs", "log_level": 0})
        try:
            found = reader.list_topics(topic, timeout=90).topics[topic].partitions
            ends = [
                reader.get_watermark_offsets(TopicPartition(topic, each), timeout=90)[1] for each in found
            ]
        except KafkaException:
            ends = []
        finally:
            reader.close()
        return sum(ends)


def has_rollups(store: Path) -> bool:
    """Asked of the store itself: a job says that it computed rollups also when there was no point yet."""
    opened = ParquetStore(store)
    try:
        return bool(opened.rollups(RollupQuery(Resolution.MINUTE, Level.FLEET, limit=1)).rows)
    finally:
        opened.close()
