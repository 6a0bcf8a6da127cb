"""How far consumer groups are behind, read from the coordinator's state when somebody asks."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from millstream.observability.metrics import FamilySnapshot, Kind, Registry, Sample

# A scrape reads this many on the loop, a few milliseconds; a cluster with more still answers, and says so.
MAX_GROUPS = 10_000
MAX_OFFSETS = 10_000

_PLACE_LABELS = ("group", "topic", "partition")


class GroupSample(NamedTuple):
    group: str
    state: str
    members: int


class OffsetSample(NamedTuple):
    """A committed offset, and the next offset readable in its partition; None where other nodes keep that."""

    group: str
    topic: str
    partition: int
    offset: int
    high_watermark: int | None


class GroupSamples(NamedTuple):
    groups: list[GroupSample]
    offsets: list[OffsetSample]
    left_out: int


class GroupsState(Protocol):
    def samples(self, max_groups: int, max_offsets: int) -> GroupSamples:
        """What there is, up to these numbers, and how much was left out."""
        ...


class BoundsState(Protocol):
    @property
    def groups(self) -> int: ...

    @property
    def members(self) -> int: ...

    @property
    def offsets(self) -> int: ...

    @property
    def offset_bytes(self) -> int: ...

    @property
    def regexes(self) -> int: ...

    bytes: int
    refusals: dict[str, int]


def watch_bounds(registry: Registry, state: BoundsState) -> None:
    """What groups take of this node, and what was refused because it was too much."""
    for name, documentation, compute in (
        ("millstream_groups", "Groups that this node coordinates.", lambda: state.groups),
        ("millstream_groups_members", "Members of all groups.", lambda: state.members),
        ("millstream_groups_offsets", "Committed offsets of all groups.", lambda: state.offsets),
        ("millstream_groups_offset_bytes", "Metadata of committed offsets.", lambda: state.offset_bytes),
        ("millstream_groups_regexes", "Regular expressions that groups subscribe by.", lambda: state.regexes),
        (
            "millstream_groups_bytes",
            "What members of groups say and are assigned, about.",
            lambda: state.bytes,
        ),
    ):
        registry.computed_gauge(name, documentation, compute)
    registry.collector(
        lambda: [
            FamilySnapshot(
                Kind.COUNTER,
                "millstream_group_refusals_total",
                "Requests of groups that were refused because of a limit.",
                ("limit",),
                [Sample((limit,), count) for limit, count in state.refusals.items()],
            )
        ]
    )


def watch_groups(registry: Registry, state: GroupsState) -> None:
    registry.collector(lambda: _families(state.samples(MAX_GROUPS, MAX_OFFSETS)))


def _families(samples: GroupSamples) -> Iterable[FamilySnapshot]:
    yield FamilySnapshot(
        Kind.GAUGE,
        "millstream_group_members",
        "Members of a group, by its state.",
        ("group", "state"),
        [Sample((each.group, each.state), each.members) for each in samples.groups],
    )
    places = [(each.group, each.topic, str(each.partition)) for each in samples.offsets]
    yield FamilySnapshot(
        Kind.GAUGE,
        "millstream_group_offset",
        "Committed offset: the next one to read.",
        _PLACE_LABELS,
        [Sample(place, each.offset) for place, each in zip(places, samples.offsets, strict=True)],
    )
    yield FamilySnapshot(
        Kind.GAUGE,
        "millstream_group_lag",
        "Offsets between the committed one and the end of what is readable.",
        _PLACE_LABELS,
        [
            Sample(place, max(each.high_watermark - each.offset, 0))
            for place, each in zip(places, samples.offsets, strict=True)
            if each.high_watermark is not None
        ],
    )
    yield FamilySnapshot(
        Kind.GAUGE,
        "millstream_group_lag_unknown",
        "1 where the group's coordinator keeps no replica of the partition, and cannot tell the lag.",
        _PLACE_LABELS,
        [
            Sample(place, 1)
            for place, each in zip(places, samples.offsets, strict=True)
            if each.high_watermark is None
        ],
    )
    yield FamilySnapshot(
        Kind.GAUGE,
        "millstream_group_samples_left_out",
        "Groups and committed offsets beyond what one scrape shows.",
        (),
        [Sample((), samples.left_out)],
    )
