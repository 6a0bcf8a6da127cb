"""One seed: a cluster is founded, works under faults, is healed, and must recover; then its history is judged."""

import asyncio
import gc
import sys
import traceback
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from types import CoroutineType
from typing import Any

from millstream.cluster.raft.wal import WalBroken
from millstream.observability import logs
from millstream.protocol.record_batch import CorruptBatch
from millstream.runtime.invariant import InvariantViolation
from millstream.runtime.sometimes import recorded
from millstream.testing.history import judge
from millstream.testing.history.groups import judge_group
from millstream.testing.history.registers import judge_positions
from millstream.testing.history.topics import judge_topics
from millstream.testing.simulator.answer_watch import AnswerWatch
from millstream.testing.simulator.cluster import SimulatedCluster
from millstream.testing.simulator.comparison import (
    differences,
    newest_image,
    unexpected_ends,
    what_is_missing,
)
from millstream.testing.simulator.door_clients import DoorClients
from millstream.testing.simulator.election_watch import ElectionWatch
from millstream.testing.simulator.http_clients import HttpClients
from millstream.testing.simulator.in_sync_watch import InSyncWatch
from millstream.testing.simulator.loop import CURRENT, SimulatedLoop, Violation
from millstream.testing.simulator.mqtt_clients import MqttClients
from millstream.testing.simulator.nemesis import Nemesis
from millstream.testing.simulator.node_changes import NodeChanges, changes_nodes, gives_up_a_node
from millstream.testing.simulator.partition_watch import PartitionWatch
from millstream.testing.simulator.plan import Plan, Profile, draw_plan, files_decay
from millstream.testing.simulator.queue_clients import QueueClients
from millstream.testing.simulator.queue_worker import TOPIC as JOBS
from millstream.testing.simulator.quorum_watch import QuorumWatch
from millstream.testing.simulator.rough_founding import is_rough, start_roughly
from millstream.testing.simulator.split_jobs import taking_turns
from millstream.testing.simulator.stream import Streams
from millstream.testing.simulator.workload import TOPIC, Workload

SECONDS = 60.0
# When the faults end. After healing, clients work for a while, and then everything is read.
_TROUBLED_SHARE = 0.8
_CALM_SECONDS = 2.0
_FORMING_SECONDS = 30.0
_HEALING_SECONDS = 60.0
_LINES_KEPT = 2000
# Additional clients of a few seeds.
_CLIENTS = {"mqtt": 0.1, "queues": 0.2, "doors": 0.1, "http": 0.1}


_left: list[Any] = []
"""Of the last run of this process."""


@dataclass(slots=True)
class Outcome:
    """The outcome of a seed. `trace` is equal for equal runs."""

    seed: int
    problems: list[str] = field(default_factory=list)
    trace: int = 0
    steps: int = 0
    simulated_seconds: float = 0.0
    faults: int = 0
    acknowledged: int = 0
    read: int = 0
    sent_by_doors: int = 0
    sent_over_mqtt: int = 0
    acknowledged_over_http: int = 0
    accepted: int = 0
    """Messages of a queue, if there are such clients."""
    metadata_changes: int = 0
    node_changes: int = 0
    """Nodes that were added, removed, and added again."""
    plan: dict[str, str] = field(default_factory=dict)
    """What the seed drew before the run, for a person who studies it."""
    marks: dict[str, int] = field(default_factory=dict)
    """How often each situation marked in the code occurred (`runtime/sometimes.py`)."""
    lines: list[str] = field(default_factory=list)
    """The last log lines of all nodes and of the nemesis."""


def run_seed(
    seed: int,
    *,
    seconds: float = SECONDS,
    faults: Sequence[str] = (),
    keep_lines: int = _LINES_KEPT,
    level: str = "warning",
    routing: str | None = None,
    profile: Profile = Profile.SWARM,
    doors: bool | None = None,
    queues: bool | None = None,
    share_consumers: float | None = None,
    nodes: int = 3,
    mqtt: bool | None = None,
    http: bool | None = None,
    is_last: bool = False,
) -> Outcome:
    """Never raises for failures of the run: they are in `problems`.

    `faults` are kinds; without any, the seed draws. The same holds for `routing`, except in the plain profile. `doors`
    adds clients of a gateway, `queues` clients of a queue (`share_consumers`: the share of its consumers that use
    Kafka's protocol, from 0 to 1), `mqtt` devices, and `http` senders and collectors at gateways: four in ten of the
    swarm draw one of these. `nodes` is for the plain profile. With `is_last` the process ends after the run, so the
    slow teardown is skipped.
    """
    was_collecting = gc.isenabled()
    gc.disable()
    # Existing objects need not be scanned when the run is torn down.
    gc.freeze()
    remains: list[Any] = _left if is_last else []
    try:
        plan = _draw(seed, faults, routing, profile)
        return _run(
            seed,
            seconds,
            faults,
            plan,
            routing or "direct",
            deque(maxlen=keep_lines),
            level,
            remains,
            _has("doors", doors, plan),
            _has("queues", queues, plan),
            share_consumers,
            nodes,
            _has("mqtt", mqtt, plan),
            _has("http", http, plan),
        )
    finally:
        if not is_last:
            _clear_away(remains)
            gc.unfreeze()
            if was_collecting:
                gc.enable()


def _has(clients: str, wanted: bool | None, plan: Plan | None) -> bool:
    """Whether there are such clients; if not given, the swarm draws."""
    if wanted is not None or plan is None:
        return bool(wanted)
    # Separate draws, so that all others stay the same; at most one kind, because of a run's cost.
    drawn = (kind for kind, share in _CLIENTS.items() if Random(f"has {kind} {plan.seed}").random() < share)
    return next(drawn, None) == clients


def _draw(seed: int, faults: Sequence[str], routing: str | None, profile: Profile) -> Plan | None:
    """None in the plain profile, where everything is drawn where it is used."""
    if profile is Profile.PLAIN:
        return None
    return draw_plan(seed, routing=routing, faults=faults, changes_nodes=changes_nodes(seed))


def _run(
    seed: int,
    seconds: float,
    faults: Sequence[str],
    plan: Plan | None,
    routing: str,
    lines: "deque[str]",
    level: str,
    remains: list[Any],
    doors: bool,
    queues: bool,
    share_consumers: float | None,
    nodes: int,
    mqtt: bool,
    http: bool,
) -> Outcome:
    outcome = Outcome(seed, plan={} if plan is None else plan.describe())
    loop = SimulatedLoop()
    with ExitStack() as stack:
        stack.callback(loop.close)
        stack.callback(logs.redirect, None)
        logs.redirect(_Sink(loop, lines), level)
        quorum = QuorumWatch(loop)
        stack.enter_context(quorum.installed())
        stack.enter_context(_invariants_reported(loop))
        stack.enter_context(recorded(outcome.marks))
        run = _Run(loop, seed, seconds, outcome, quorum, faults, plan, routing, nodes)
        if doors:
            run.add_doors()
        if queues:
            run.add_queues(share_consumers)
        if mqtt:
            run.add_mqtt()
        if http:
            run.add_http()
        remains += (loop, run)
        stack.callback(run.end)
        stack.enter_context(taking_turns(run.cluster.jobs_of_current))
        stack.enter_context(run.partitions.installed())
        stack.enter_context(AnswerWatch(loop.violated, run.partitions).installed())
        try:
            loop.run(run.main())
        except Exception as error:  # noqa: BLE001 - whatever it is, the seed has found it
            outcome.problems.append(f"{type(error).__name__}: {error}")
        outcome.metadata_changes = quorum.committed_index
        outcome.problems += [_describe(each) for each in loop.failures]
    outcome.trace, outcome.steps = loop.trace & (1 << 64) - 1, loop.steps
    outcome.simulated_seconds = loop.time()
    outcome.lines = list(lines)
    return outcome


class _Run:
    def __init__(
        self,
        loop: SimulatedLoop,
        seed: int,
        seconds: float,
        outcome: Outcome,
        quorum: QuorumWatch,
        faults: Sequence[str],
        plan: Plan | None,
        routing: str,
        nodes: int,
    ) -> None:
        self._loop = loop
        self._seed = seed
        self._seconds = seconds
        self._outcome = outcome
        self._quorum = quorum
        self._changes: NodeChanges | None = None
        self._nemesis: Nemesis
        self._is_rough = plan is not None and is_rough(seed)
        if plan is None:
            random = Random(seed)
            self._cluster = SimulatedCluster(loop, random, nodes, routing)
            self._watch()
            self._play_plain(random, faults)
        else:
            self._cluster = SimulatedCluster(
                loop, plan.random("machines"), plan.nodes, plan.routing, plan.apply
            )
            if plan.splits_jobs:
                self._cluster.split_jobs()
            if plan.late_flushes:
                self._cluster.keep_caches()
            self._watch()
            self._play(plan)
        # Where any node forwards requests: a separate draw, so that the others stay the same.
        self._streams: Streams | None = None
        self._doors: DoorClients | None = None
        self._queues: QueueClients | None = None
        self._mqtt: MqttClients | None = None
        self._http: HttpClients | None = None
        if self._cluster.routing == "proxy":
            self._streams = Streams(self._cluster, Random(f"streams of {seed}"))

    def add_doors(self) -> None:
        self._doors = DoorClients(self._cluster, Random(f"doors of {self._seed}"))

    def add_queues(self, share_consumers: float | None) -> None:
        seed = self._seed
        self._queues = QueueClients(
            self._cluster, Random(f"queues of {seed}"), Random(f"queue doors of {seed}"), share_consumers
        )

    def add_mqtt(self) -> None:
        self._mqtt = MqttClients(self._cluster, Random(f"mqtt of {self._seed}"))

    def add_http(self) -> None:
        self._http = HttpClients(self._cluster, Random(f"http of {self._seed}"))

    @property
    def cluster(self) -> SimulatedCluster:
        return self._cluster

    def end(self) -> None:
        self._cluster.end()

    def _watch(self) -> None:
        violated = self._loop.violated
        self.partitions = PartitionWatch(self._loop, self._cluster, self._quorum)
        elections = ElectionWatch(violated)
        elections.records_came = InSyncWatch(violated).records_came
        self._quorum.entry_came = elections.entry_came

    def _play(self, plan: Plan) -> None:
        self._nemesis = Nemesis(
            self._cluster, plan.random("nemesis"), self._quorum, plan.faults, plan.gap_seconds, plan.at_once
        )
        if changes_nodes(self._seed) and "bit_rot" not in plan.faults:
            # What rots on one node must have a sound copy on another.
            gives_up = gives_up_a_node(self._seed) and not files_decay(plan.faults)
            self._changes = self._node_changes(gives_up=gives_up)
        self._workload = Workload.planned(self._cluster, plan, self._quorum, self._nemesis.strike)

    def _play_plain(self, random: Random, faults: Sequence[str]) -> None:
        """The order matters: the plain profile's seeds depend on it."""
        self._nemesis = Nemesis(self._cluster, Random(random.getrandbits(64)), self._quorum, faults)
        rots = files_decay(self._nemesis.kinds)
        if changes_nodes(self._seed) and not rots:
            self._changes = self._node_changes()
        # With bit rot a sound copy must be left; while nodes are added and removed, only one client moves replicas.
        allowed = () if rots else ("settings",) if self._changes is not None else ("moves", "settings")
        self._workload = Workload.plain(self._cluster, random, allowed=allowed)

    def _node_changes(self, *, gives_up: bool = False) -> NodeChanges:
        # A separate draw, so that runs without it stay the same.
        random = Random(f"nodes of {self._seed}")
        return NodeChanges(self._cluster, random, self._quorum, gives_up=gives_up)

    async def main(self) -> None:
        loop, workload, nemesis, outcome = self._loop, self._workload, self._nemesis, self._outcome
        if self._is_rough:
            # A separate draw, as for all later additions.
            await start_roughly(self._cluster, Random(f"rough founding of {self._seed}"))
        else:
            self._cluster.start()
        await self._within(_FORMING_SECONDS, self._form(), "the cluster did not form")
        workload.start()
        nemesis.start()
        for clients in (self._streams, self._doors, self._queues, self._mqtt, self._http):
            if clients is not None:
                clients.start()
        if self._changes is not None:
            self._changes.start()
        await asyncio.sleep(max(0.0, self._seconds * _TROUBLED_SHARE - loop.time()))
        workload.stop_operating()
        await nemesis.heal()
        outcome.faults = nemesis.count
        try:
            await self._within(_HEALING_SECONDS, self._come_back(), "no progress after everything was healed")
        except Violation as error:
            raise Violation(f"{error}: {self._what_is_missing()}") from None
        if self._changes is not None:
            outcome.node_changes = self._changes.count
        await asyncio.sleep(_CALM_SECONDS)
        await self._within(_HEALING_SECONDS, workload.stop(), "the clients did not come to an end")
        await self._within(_HEALING_SECONDS, workload.read_everything(), "not everything could be read")
        await self._finish_clients()
        # What a slow disk was asked before everything was healed may have made a replica leave since.
        await self._within(_HEALING_SECONDS, self._until_whole(), "a partition is not in sync at the end")
        nemesis.end()
        outcome.problems += differences(self._cluster)
        outcome.problems += unexpected_ends(self._cluster, self._nemesis.kinds)
        outcome.acknowledged = sum(producer.acknowledged for producer in workload.producers)
        outcome.read = sum(len(poll.records) for poll in workload.history.polls)
        outcome.problems += map(str, judge(workload.history))
        outcome.problems += map(str, judge_topics(workload.topic_calls))
        if workload.group is not None:
            outcome.problems += map(str, judge_group(workload.group, workload.history))
            outcome.problems += map(str, judge_positions(workload.group))
        outcome.problems += map(str, workload.judge_sides())
        if self._streams is not None:
            outcome.problems += map(str, self._streams.judge())
        settings = workload.operator.judge_settings(newest_image(self._cluster).topics[TOPIC])
        outcome.problems += map(str, settings)

    async def _finish_clients(self) -> None:
        outcome = self._outcome
        if self._streams is not None:
            await self._within(_HEALING_SECONDS, self._streams.finish(), "the streams did not come to an end")
        if self._doors is not None:
            await self._within(_HEALING_SECONDS, self._doors.finish(), "the doors did not come to an end")
            outcome.sent_by_doors = self._doors.acknowledged
            outcome.problems += map(str, self._doors.judge())
        if self._queues is not None:
            await self._within(
                2 * _HEALING_SECONDS, self._queues.finish(), "the queue did not come to an end"
            )
            outcome.accepted = sum(worker.accepted for worker in self._queues.workers)
            jobs = newest_image(self._cluster).topic(JOBS)
            # The operator and moving replicas also change leaders.
            leaders_stay = (
                self._nemesis.kinds == ("reset",)
                and jobs is not None
                and all(each.leader_epoch == 0 for each in jobs.partitions)
            )
            outcome.problems += map(str, self._queues.judge(leaders_stay=leaders_stay))
        if self._mqtt is not None:
            await self._within(
                3 * _HEALING_SECONDS, self._mqtt.finish(), "the MQTT clients did not come to an end"
            )
            outcome.sent_over_mqtt = self._mqtt.acknowledged
            outcome.problems += self._mqtt.judge()
        if self._http is not None:
            await self._within(
                3 * _HEALING_SECONDS, self._http.finish(), "the HTTP clients did not come to an end"
            )
            outcome.acknowledged_over_http = self._http.acknowledged
            outcome.problems += map(str, self._http.judge())

    async def _form(self) -> None:
        workload = self._workload
        await workload.as_client(
            workload.admin.client, workload.admin.create_surely(TOPIC, workload.partitions, workload.configs)
        )

    async def _come_back(self) -> None:
        """Every node serves, every partition has a leader and is in sync, producers and the group get acknowledgements.

        Checks the nodes that are members by then: changes under way are completed.
        """
        if self._changes is not None:
            await self._changes.finish()
        progress = self._workload.progress()
        before = [acknowledged() for acknowledged in progress]
        while not (  # noqa: ASYNC110
            self._what_is_missing() is None
            and all(acknowledged() > then for acknowledged, then in zip(progress, before, strict=True))
        ):
            await asyncio.sleep(0.1)

    async def _until_whole(self) -> None:
        while self._what_is_missing() is not None:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.1)

    def _what_is_missing(self) -> str | None:
        missing = None if self._changes is None else self._changes.what_is_missing()
        return missing or what_is_missing(self._cluster)

    async def _within(self, seconds: float, work: Any, otherwise: str) -> None:
        try:
            async with asyncio.timeout(seconds):
                await work
        except TimeoutError:
            raise Violation(f"{otherwise} within {seconds:.0f} s") from None


_OF_THE_DISK = (OSError, CorruptBatch, WalBroken)
"""Consequences of disk faults, wherever they appear."""


class _Sink:
    """Log lines with their simulated time and machine; an unexpected error fails the run."""

    def __init__(self, loop: SimulatedLoop, lines: "deque[str]") -> None:
        self._loop = loop
        self._lines = lines

    def __call__(self, level: str, event: str, fields: dict[str, Any]) -> None:
        process = CURRENT.get()
        where = process.machine if process is not None else "-"
        told = " ".join(f"{name}={value}" for name, value in fields.items() if name != "logger")
        self._lines.append(f"{self._loop.time():10.4f} {where:10} {level:7} {event} {told}")
        given = fields.get("exc_info")
        error = given if isinstance(given, BaseException) else sys.exc_info()[1] if given else None
        if error is not None:
            self._lines.extend(traceback.format_exception(error))
        if error is not None and not isinstance(error, _OF_THE_DISK):
            self._loop.call_exception_handler({"message": f"{where}: {event} {told}", "exception": error})


@contextmanager
def _invariants_reported(loop: SimulatedLoop) -> Iterator[None]:
    """A broken invariant of the program ends the run, even if the program would tolerate it."""
    original = InvariantViolation.__init__

    def reported(self: InvariantViolation, *arguments: object) -> None:
        original(self, *arguments)
        loop.violated(f"invariant: {self}")

    setattr(InvariantViolation, "__init__", reported)  # noqa: B010 - a method in place of a method
    try:
        yield
    finally:
        setattr(InvariantViolation, "__init__", original)  # noqa: B010


def _describe(failure: dict[str, Any]) -> str:
    return f"{failure.get('message')}: {failure.get('exception')!r}"


def _clear_away(remains: list[Any]) -> None:
    """Tears down the run; killed programs complain when their tasks are destroyed."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # First, or their ends would keep other objects in use during the collection.
            for each in gc.get_objects():
                if type(each) is CoroutineType:
                    with suppress(BaseException):
                        each.close()
            del each
            remains.clear()
            gc.collect()
    finally:
        sys.unraisablehook = hook
