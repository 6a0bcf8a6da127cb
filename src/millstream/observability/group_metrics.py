"""The lag of consumer groups, read from the coordinator's state at each scrape."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from millstream.observability.metrics import FamilySnapshot, Kind, Registry, Sample

# A scrape reads at most so many on the loop, which takes a few milliseconds; it reports how many it left out.
MAX_GROUPS = 10_000
MAX_OFFSETS = 10_000

_PLACE_LABELS = ("group", "topic", "partition")


class GroupSample(NamedTuple):
    group: str
    state: str
    members: int


class OffsetSample(NamedTuple):
    """A committed offset, and the next readable offset of its partition; None where another node leads it."""

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
        """The groups and offsets up to these limits, and how many were left out."""
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
    """The resources that groups take on this node, and requests refused because of limits."""
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
