"""Did the node keep its word? Each function names one promise and fails with what broke it."""

from collections import Counter, defaultdict

from support.durability.ledger import Ledger, Place, name_of, number_of

Found = dict[Place, bytes]


def everything_sent_was_acknowledged(ledger: Ledger) -> None:
    assert ledger.failed == []
    assert ledger.reused == []
    assert ledger.acknowledged


def acknowledged_values_are_where_they_were_said_to_be(
    ledger: Ledger, found: Found, starts: dict[int, int]
) -> None:
    wrong = [
        f"{place}: {found.get(place)!r} instead of {value!r}"
        for place, value in ledger.acknowledged.items()
        if place.offset >= starts[place.partition] and found.get(place) != value
    ]
    assert wrong == []


def nothing_appears_that_was_not_sent(ledger: Ledger, found: Found) -> None:
    strange = [value for value in found.values() if number_of(value) > ledger.sent.get(name_of(value), 0)]
    assert strange == []


def offsets_have_no_gap(found: Found, starts: dict[int, int]) -> None:
    by_partition: dict[int, list[int]] = defaultdict(list)
    for place in sorted(found):
        by_partition[place.partition].append(place.offset)
    for partition, offsets in by_partition.items():
        assert offsets == list(range(starts[partition], starts[partition] + len(offsets)))


def every_value_is_there_once_and_in_order(ledger: Ledger, found: Found, starts: dict[int, int]) -> None:
    """The promise of idempotence, for topics that delete nothing."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for place in sorted(found):
        numbers[name_of(found[place])].append(number_of(found[place]))
    assert set(starts.values()) == {0}
    for name, count in ledger.sent.items():
        assert numbers[name] == list(range(1, count + 1)), _differences(numbers[name], count)


def _differences(numbers: list[int], count: int) -> str:
    counted = Counter(numbers)
    lost = [number for number in range(1, count + 1) if number not in counted]
    twice = [number for number, times in counted.items() if times > 1]
    return f"lost {lost[:20]}, twice {twice[:20]}, of {count}"


def every_value_is_there_and_first_copies_are_in_order(ledger: Ledger, found: Found) -> None:
    """Without idempotence a retry may write a batch again, and behind later ones, but nothing may be lost."""
    numbers: dict[str, set[int]] = defaultdict(set)
    for value in found.values():
        numbers[name_of(value)].add(number_of(value))
    for name, count in ledger.sent.items():
        assert numbers[name] == set(range(1, count + 1)), _differences(sorted(numbers[name]), count)


def each_key_ends_with_its_latest_value(ledger: Ledger, found: Found) -> None:
    last: dict[str, int] = {}
    for place in sorted(found):
        last[name_of(found[place])] = number_of(found[place])
    assert last == ledger.sent


def what_a_reader_saw_stays(seen: Found, found: Found, starts: dict[int, int]) -> None:
    changed = [
        f"{place}: {found.get(place)!r}, a reader saw {value!r}"
        for place, value in seen.items()
        if place.offset >= starts[place.partition] and found.get(place) != value
    ]
    assert changed == []
