"""What must hold for every group, judged from what its members told."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from support.members.team import Told


class Member(Protocol):
    """Whoever has a name and told what happened to it."""

    @property
    def name(self) -> str: ...

    @property
    def told(self) -> Sequence[Told]: ...


def each_partition_had_one_owner_at_a_time(members: Sequence[Member]) -> None:
    spans: dict[int, list[tuple[int, int, str]]] = {}
    lost: set[tuple[str, int]] = set()
    for member in members:
        since: dict[int, int] = {}
        for told in [*member.told, Told(2**63, "closing", {})]:
            if told.event == "assigned":
                since.update(dict.fromkeys(told.partitions - since.keys(), told.at))
            elif told.event in ("revoked", "closing"):
                for partition in told.partitions if told.event == "revoked" else set(since):
                    if told.fields.get("lost"):
                        lost.add((member.name, told.at))
                    if partition in since:
                        spans.setdefault(partition, []).append((since.pop(partition), told.at, member.name))
                if told.event == "closing":
                    # It reads nothing any more, whatever a rebalance that is under way still gives it.
                    break
    for partition, found in spans.items():
        found.sort()
        for (_, end, former), (start, _, latter) in pairwise(found):
            assert end <= start, (
                f"partition {partition}: {latter} had it {(end - start) / 1e6:.1f} ms before {former} gave it up"
                + (", or rather lost it" if (former, end) in lost else "")
                + _told_around(start, [each for each in members if each.name in (former, latter)])
            )


@dataclass
class _Partition:
    """How far it was read and committed, and where each owner goes on."""

    read_to: int = 0
    committed: int = 0
    next_of: dict[str, int] = field(default_factory=dict)


def nothing_was_skipped_and_no_position_went_back(members: Sequence[Member]) -> dict[int, int]:
    """A new owner starts between the last acknowledged commit and the end of what was read.

    So nothing is skipped, and where the owner before could commit what it had read (it was not killed) the
    position does not go back. Returns the last acknowledged commit of each partition.
    """
    partitions: dict[int, _Partition] = {}
    told_by = [(told, member.name) for member in members for told in member.told]
    for told, name in sorted(told_by, key=lambda pair: pair[0].at):
        if told.event == "assigned":
            for partition in told.partitions:
                partitions.setdefault(partition, _Partition()).next_of.pop(name, None)
        elif told.event == "read":
            seen = partitions.setdefault(told.fields["partition"], _Partition())
            first, last = told.fields["first"], told.fields["last"]
            expected = seen.next_of.get(name)
            where = f"partition {told.fields['partition']}: {name} read from {first}"
            if expected is None:
                assert first >= seen.committed, f"{where}, {seen.committed} was committed"
                assert first <= seen.read_to, f"{where}, nobody has read from {seen.read_to} on"
            else:
                assert first == expected, f"{where}, not from {expected}"
            seen.next_of[name] = last + 1
            seen.read_to = max(seen.read_to, last + 1)
        elif told.event == "committed":
            seen = partitions[told.fields["partition"]]
            seen.committed = max(seen.committed, told.fields["offset"])
    return {partition: seen.committed for partition, seen in partitions.items()}


def _told_around(at: int, members: Sequence[Member]) -> str:
    """What they told within two seconds of that moment, for whoever looks for the reason."""
    told = sorted(
        ((each.at - at) / 1e6, member.name, each.event, str(each.fields))
        for member in members
        for each in member.told
        if abs(each.at - at) < 2_000_000_000 and each.event in ("assigned", "revoked", "closing")
    )
    return "".join(f"\n{ms:9.1f} ms  {name}  {event}  {fields}" for ms, name, event, fields in told)
