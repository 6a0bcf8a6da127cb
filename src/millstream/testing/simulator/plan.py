"""What a seed draws before the run: the cluster's settings, the kinds of faults, the clients' work.

Two profiles. `swarm`: each seed has a few kinds of faults and extreme settings, so that what is rare in most clusters
is common in one of them (Groce and others, "Swarm Testing", 2012). `plain`: three nodes with the same settings each
time, one used topic, and faults from the first eighteen kinds. Every subject has its own generator, so that another
choice does not change the rest.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import Random

from millstream.config.checks import LEASE_SHARE
from millstream.config.settings import Settings
from millstream.testing.simulator.decay import KINDS as DECAY
from millstream.testing.simulator.nemesis import ALL_KINDS, TORN_BLACKOUT

_NODES = (3, 3, 3, 3, 3, 3, 3, 3, 5)
# The share of runs with bit rot that move replicas: in the others nothing may be moved.
_ROT_SHARE = 0.4
# Of the others: those in which files decay in more ways, on more than one machine.
_DECAY_SHARE = 0.25
_TORN_SHARE = 0.1
_ROUTINGS: tuple[dict[str, str], ...] = ({}, {}, {"client.routing": "proxy"}, {"client.routing": "direct"})
_SPLIT_SHARE = 0.25
_DAY_MS = "86400000"
_LATE_SHARE = 0.1
# Faults that lose unflushed records although the page cache is kept.
_LOSE_UNFLUSHED = {"failing_sync", "bit_rot", TORN_BLACKOUT, *DECAY}


class Profile(StrEnum):
    SWARM = "swarm"
    PLAIN = "plain"


class SideKind(StrEnum):
    """How a side topic's records are deleted."""

    STREAM = "stream"
    """Never, as long as the topic exists."""
    TRIMMED = "trimmed"
    """Clients delete the oldest ones."""
    RETAINED = "retained"
    """By retention."""
    COMPACTED = "compacted"


class GroupStyle(StrEnum):
    NONE = "none"
    CLASSIC = "classic"
    CONSUMER = "consumer"
    """KIP-848."""


@dataclass(frozen=True, slots=True)
class SidePlan:
    """A topic that is created, used, changed and deleted, over and over."""

    name: str
    kind: SideKind
    partitions: int
    replicas: int
    configs: dict[str, str]
    life_seconds: float
    """Roughly how long one lives before it is deleted."""
    works: tuple[str, ...]
    """The changes made to it meanwhile."""


@dataclass(frozen=True, slots=True)
class LedgerPlan:
    """The topic that is never deleted, and its clients."""

    partitions: int
    configs: dict[str, str]
    pause_seconds: float
    group: GroupStyle
    members: int
    works: tuple[str, ...]
    eager_offsets: bool
    """Whether group offsets are in tiny segments, which are compacted as soon as they are full."""


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    routing: str
    nodes: int
    faults: tuple[str, ...]
    gap_seconds: float
    at_once: int
    settings: dict[str, int]
    """The cluster settings that differ between runs, by the names that `apply` knows."""
    ledger: LedgerPlan
    splits_jobs: bool
    """Whether threads' jobs run in pieces, with other jobs in between."""
    sides: tuple[SidePlan, ...] = field(default=())
    late_flushes: dict[str, str] = field(default_factory=dict)
    """Settings of the topics, by which acknowledgements do not wait for flushes; no page cache is lost then."""
    is_late_everywhere: bool = False
    """Whether the internal topics have these settings too."""

    def random(self, subject: str) -> Random:
        return Random(f"{self.seed}:{subject}")

    def apply(self, settings: Settings) -> Settings:
        drawn = self.settings
        return replace(
            settings,
            cluster=replace(
                settings.cluster,
                session_timeout=drawn["session_ms"],
                heartbeat_interval=drawn["heartbeat_ms"],
                snapshot_size=drawn["snapshot_bytes"],
            ),
            storage=replace(
                settings.storage,
                checkpoint_interval=drawn["checkpoint_ms"],
                cleaner_interval=drawn["cleaner_ms"],
                retention_check_interval=drawn["retention_check_ms"],
            ),
            performance=replace(settings.performance, max_open_files=drawn["open_files"]),
            replication=replace(
                settings.replication,
                default_replication_factor=3,
                replica_lag_time_max=drawn["lag_ms"],
                replica_fetch_wait_max=drawn["fetch_wait_ms"],
                leader_imbalance_check_seconds=drawn["imbalance_check_s"],
            ),
            kafka={
                **settings.kafka,
                "offsets.topic.num.partitions": str(drawn["offsets_partitions"]),
                "group.consumer.session.timeout.ms": "6000",
                "group.consumer.heartbeat.interval.ms": "1500",
                "log.segment.delete.delay.ms": str(drawn["delete_delay_ms"]),
                **(_for_all_topics(self.late_flushes) if self.is_late_everywhere else {}),
            },
        )

    def describe(self) -> dict[str, str]:
        """A description for a person who studies the run."""
        ledger = self.ledger
        return {
            "routing": self.routing,
            "nodes": str(self.nodes),
            "jobs of threads": "in pieces" if self.splits_jobs else "in one piece",
            "faults drawn": ", ".join(dict.fromkeys(self.faults)),
            "settings drawn": ", ".join(f"{name} {value}" for name, value in self.settings.items()),
            "flushed later": ", ".join(f"{name} {value}" for name, value in self.late_flushes.items())
            + (", by default" if self.is_late_everywhere else "")
            or "nothing",
            "ledger": f"{ledger.partitions} partitions {ledger.configs or ''}, group {ledger.group},"
            f" {', '.join(ledger.works) or 'left alone'}",
            "side topics": "; ".join(
                f"{each.name}: {each.kind}, {each.partitions} x {each.replicas},"
                f" {', '.join(each.works) or 'left alone'}"
                for each in self.sides
            )
            or "none",
        }


def draw_plan(
    seed: int, *, routing: str | None = None, faults: Sequence[str] = (), changes_nodes: bool = False
) -> Plan:
    """The caller may fix `routing` and `faults`. `changes_nodes`: another client moves replicas."""
    kinds = tuple(faults) or _draw_faults(seed, changes_nodes=changes_nodes)
    late = {} if faults else draw_late_flushes(seed)
    if late:
        kinds = tuple(kind for kind in kinds if kind not in _LOSE_UNFLUSHED) or ("kill",)
    troubles = Random(f"{seed}:troubles")
    rots = files_decay(kinds)
    ledger = _draw_ledger(seed, rots=rots, changes_nodes=changes_nodes)
    sides = _draw_sides(seed, rots=rots, changes_nodes=changes_nodes)
    return Plan(
        seed,
        routing or Random(f"{seed}:routing").choice(("direct", "direct", "proxy")),
        3 if changes_nodes else Random(f"{seed}:nodes").choice(_NODES),
        kinds,
        troubles.choice((0.3, 1.0, 2.0, 4.0)),
        troubles.choice((1, 1, 2, 3)),
        _draw_settings(Random(f"{seed}:settings")),
        replace(ledger, configs=ledger.configs | late),
        Random(f"{seed}:threads").random() < _SPLIT_SHARE,
        tuple(replace(side, configs=side.configs | late) for side in sides),
        late,
        bool(late) and Random(f"{seed}:flushed later by default").random() < 0.5,
    )


def draw_late_flushes(seed: int) -> dict[str, str]:
    random = Random(f"{seed}:flushed later")
    if random.random() >= _LATE_SHARE:
        return {}
    return {
        "flush.messages": random.choice(("2", "10", "1000000")),
        "flush.ms": random.choice(("100", "1000", "20000")),
    }


def _for_all_topics(flushes: dict[str, str]) -> dict[str, str]:
    return {f"log.{name.replace('.', '.interval.')}": value for name, value in flushes.items()}


def files_decay(kinds: Collection[str]) -> bool:
    """Whether copies of records are lost by decay: then sound ones must be left."""
    return not {"bit_rot", *DECAY}.isdisjoint(kinds)


def _draw_faults(seed: int, *, changes_nodes: bool) -> tuple[str, ...]:
    """Each kind is in or out; one run has few, another most."""
    random = Random(f"{seed}:faults")
    share = random.choice((0.1, 0.2, 0.4, 0.7))
    drawn = {kind: Random(f"{seed}:fault {kind}").random() < share for kind in ALL_KINDS}
    rot = Random(f"{seed}:rot")
    is_other = rot.random() >= _ROT_SHARE
    if is_other:
        drawn["bit_rot"] = False
    kinds = tuple(kind for kind, is_in in drawn.items() if is_in)
    if is_other and rot.random() < _DECAY_SHARE:
        # While nodes are added and removed, only one client moves replicas.
        decay = [kind for kind in DECAY if not (changes_nodes and kind == "rot_in_move")]
        # As often as other faults, however many kinds of those there are.
        kinds += tuple(rot.sample(decay, rot.randint(1, 3))) * max(1, len(kinds) // 4)
    if Random(f"{seed}:torn logs").random() < _TORN_SHARE:
        kinds += (TORN_BLACKOUT,) * max(1, len(kinds) // 4)
    return kinds or (random.choice([kind for kind in ALL_KINDS if kind != "bit_rot"]),)


def _draw_settings(random: Random) -> dict[str, int]:
    session_ms, heartbeat_ms = random.choice(((1500, 500), (3000, 1000), (3000, 1200), (8000, 2000)))
    return {
        "session_ms": session_ms,
        "heartbeat_ms": heartbeat_ms,
        # From several a second to none in a run.
        "checkpoint_ms": random.choice((300, 2_000, 5_000, 20_000, 600_000)),
        "cleaner_ms": random.choice((500, 2_000, 5_000)),
        "retention_check_ms": random.choice((500, 3_000, 20_000)),
        "snapshot_bytes": random.choice((500, 2_000, 4 << 20)),
        # Barely longer than a lease, as a node asks for, or as usual.
        "lag_ms": max(random.choice((2_000, 4_000, 30_000)), int(session_ms * LEASE_SHARE) + 100),
        "fetch_wait_ms": random.choice((1_000, 2_000, 2_000)),
        "imbalance_check_s": random.choice((3, 15, 300)),
        "open_files": random.choice((16, 1000)),
        "offsets_partitions": random.choice((1, 1, 3)),
        "delete_delay_ms": random.choice((0, 1_000, 60_000)),
    }


def _draw_ledger(seed: int, *, rots: bool, changes_nodes: bool) -> LedgerPlan:
    random = Random(f"{seed}:ledger")
    works = ("moves", "round_trips", "settings", "growth")
    # With bit rot a sound copy must be left: at least two replicas, both in sync. While nodes are added and removed,
    # only one client moves replicas.
    forbidden = {
        *(("round_trips", "settings") if rots else ()),
        *(("moves", "round_trips") if changes_nodes else ()),
    }
    operator = Random(f"{seed}:operator")
    return LedgerPlan(
        random.choice((1, 2, 2, 3)),
        random.choice(({}, {"segment.bytes": "300"}, {"segment.bytes": "1000"}, {"segment.bytes": "2000"}))
        | _draw_routing(seed, "ledger"),
        random.choice((0.3, 1.0, 2.0)),
        random.choice((GroupStyle.NONE, GroupStyle.CLASSIC, GroupStyle.CONSUMER)),
        random.choice((1, 2, 3)),
        tuple(each for each in works if operator.random() < 0.5 and each not in forbidden),
        eager_offsets=Random(f"{seed}:offsets").random() < 0.5,
    )


def _draw_sides(seed: int, *, rots: bool, changes_nodes: bool) -> list[SidePlan]:
    count = Random(f"{seed}:side topics").choice((0, 1, 1, 2))
    return [
        _draw_side(
            Random(f"{seed}:side topic {number}"),
            number,
            rots,
            changes_nodes,
            _draw_routing(seed, f"side {number}"),
            _draw_lag(seed, number),
        )
        for number in range(count)
    ]


def _draw_routing(seed: int, topic: str) -> dict[str, str]:
    """Whether nodes forward requests for the topic, if that differs from the cluster's setting."""
    return Random(f"{seed}:routing of {topic}").choice(_ROUTINGS)


def _draw_lag(seed: int, number: int) -> dict[str, str]:
    """Whether the last records of a compacted topic are sealed and compacted too, while nothing follows them."""
    return {"max.compaction.lag.ms": "1000"} if Random(f"{seed}:lag of side {number}").random() < 0.3 else {}


def _draw_side(
    random: Random,
    number: int,
    rots: bool,
    changes_nodes: bool,
    routing: dict[str, str],
    compaction_lag: dict[str, str],
) -> SidePlan:
    kind = random.choice(list(SideKind))
    configs = {"segment.bytes": random.choice(("200", "600", "2000"))} | routing
    if kind is SideKind.RETAINED:
        configs |= random.choice(({"retention.bytes": "1500"}, {"retention.ms": "4000"}))
    if kind is SideKind.COMPACTED:
        configs |= {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": _DAY_MS,
        } | compaction_lag
    minimum = random.choice(({}, {"min.insync.replicas": "1"}, {"min.insync.replicas": "2"}))
    if not rots:
        configs |= minimum
    works = ["growth"] if random.random() < 0.5 else []
    moves = [each for each in ("moves", "round_trips") if random.random() < 0.5]
    if not changes_nodes:
        works += [each for each in moves if each == "moves" or not rots]
    if kind is SideKind.TRIMMED:
        works.append("trims")
    return SidePlan(
        f"side-{number}",
        kind,
        random.choice((1, 2)),
        3 if rots else random.choice((3, 3, 3, 2, 1)),
        configs,
        random.choice((4.0, 12.0, 40.0)),
        tuple(works),
    )
