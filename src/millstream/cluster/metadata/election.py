"""Who leads a partition after something happened to its replicas, and who is in sync: pure, one partition at a time."""

from collections.abc import Collection, Mapping
from enum import Enum

import msgspec
from msgspec.structs import replace

from millstream.cluster.metadata.image import (
    NO_LEADER,
    BrokerImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from millstream.cluster.metadata.records import LastKnownReplica
from millstream.runtime.sometimes import sometimes

# A leader is chosen among replicas that ended uncleanly once this many have reported: two disks do not rot at once.
_ENOUGH_REPORTS = 2

_NOBODY: frozenset[int] = frozenset()
_MIN_INSYNC = "min.insync.replicas"


class Seek(Enum):
    """When a new leader is looked for."""

    IF_NEEDED = 0
    PREFERRED = 1
    """Elect the first replica if it is in sync; otherwise change nothing."""
    UNCLEAN = 2
    """As IF_NEEDED, but any live replica may lead, whatever the topic's settings."""


class TopicRules(msgspec.Struct, frozen=True):
    min_insync: int
    """Not yet capped at the number of a partition's replicas."""
    allows_unclean: bool


class Losses(msgspec.Struct, frozen=True):
    """Brokers that returned after an unclean stop; `wiped` returned with a different disk."""

    unclean: Collection[int] = _NOBODY
    wiped: Collection[int] = _NOBODY


NO_LOSSES = Losses()


class Recovered(msgspec.Struct, frozen=True):
    """A replica's report after an unclean stop; `is_whole` if it lost nothing that it had confirmed."""

    has: LastKnownReplica
    is_whole: bool


def rules_of(image: MetadataImage, topic: TopicImage) -> TopicRules:
    """The minimum set on the topic, or else the lowest of all brokers: no leader goes below it.

    Unclean elections are allowed per topic or by the dynamic default of all brokers, not by one broker's file.
    """
    key = "unclean.leader.election.enable"
    unclean = topic.configs.get(key) or image.broker_configs.get("", {}).get(key) or "false"
    return TopicRules(_min_insync(image, topic), unclean.lower() == "true")


def min_insync(image: MetadataImage, topic: TopicImage) -> int:
    """How many replicas must be in sync to acknowledge a write; at most the topic's replication factor."""
    factor = max((len(p.replicas) for p in topic.partitions), default=1)
    return min(_min_insync(image, topic), factor)


def _min_insync(image: MetadataImage, topic: TopicImage) -> int:
    own = topic.configs.get(_MIN_INSYNC)
    return int(own) if own is not None else lowest_min_insync(image)


def lowest_min_insync(image: MetadataImage) -> int:
    """The minimum for topics that set none: the dynamic setting of each broker, or else the one in its file."""
    shared = image.broker_configs.get("", {}).get(_MIN_INSYNC)
    values = [
        image.broker_configs.get(str(broker.broker_id), {}).get(_MIN_INSYNC) or shared or broker.min_insync
        for broker in image.brokers.values()
    ]
    return min(map(int, values), default=1)


def is_usable(brokers: Mapping[int, BrokerImage], broker_id: int) -> bool:
    """Registered, not fenced, and not shutting down."""
    broker = brokers.get(broker_id)
    return broker is not None and not broker.is_fenced and not broker.is_shutting_down


def next_state(
    p: PartitionImage,
    brokers: Mapping[int, BrokerImage],
    rules: TopicRules,
    *,
    isr: tuple[int, ...] | None = None,
    losses: Losses = NO_LOSSES,
    recovered: Recovered | None = None,
    seek: Seek = Seek.IF_NEEDED,
    may_end_move: bool = False,
) -> PartitionImage:
    """The partition's next state for these brokers; `p` itself if nothing changes.

    `isr` is the set that the leader reports or a reassignment leaves; by default that of `p`, without unusable brokers.
    `may_end_move`: the leader confirms that all in-sync replicas to be removed know who leads, so that none of them
    answers reads as a leader.
    """
    # A partition's only replica continues with what its broker still has.
    unclean = losses.unclean if len(p.replicas) > 1 else _NOBODY
    wanted = p.isr if isr is None else isr
    in_sync = tuple(b for b in wanted if b not in unclean and is_usable(brokers, b))
    replicas, is_done = p.replicas, False
    if may_end_move or not set(in_sync) & set(p.removing):
        replicas, in_sync, is_done = _finish_reassignment(p, in_sync, rules.min_insync)
    had_all = {*p.isr, *p.elr, *wanted}
    known = _last_known_elr(p.last_known_elr, had_all, unclean, losses.wiped, recovered)
    eligible = tuple(b for b in replicas if b in had_all and b not in in_sync and b not in unclean)
    others = frozenset(replicas) - {*in_sync, *eligible}
    known = tuple(each for each in known if each.broker_id in others)
    last_known = p.last_known_leader if p.leader == NO_LEADER else p.leader
    if last_known in losses.wiped and len(replicas) > 1:
        last_known = NO_LEADER
    if not in_sync and not eligible and not known and last_known == NO_LEADER:
        known = _remaining(replicas, losses.wiped)
    best = _best_of(known, len(eligible), replicas, brokers)
    leader = _elect(p.leader, replicas, in_sync, eligible, known, best, last_known, brokers, rules, seek)
    if leader != NO_LEADER and leader not in in_sync:
        if leader in eligible:
            sometimes("a leader was elected from the eligible set")
        elif leader == best:
            sometimes("logs in doubt were compared and the best one leads")
        # A replica that was being added may lead now, and no one else would report that the move is done.
        replicas, in_sync, is_done = _finish_reassignment(p, (leader,), rules.min_insync)
        if leader not in eligible and leader != best:
            # After an unclean election no replica is known to have everything.
            eligible, known = (), ()
        eligible = tuple(b for b in eligible if b != leader and b in replicas)
    if leader != NO_LEADER:
        # Their logs change as they fetch, so they report again after the leader is lost.
        known = tuple(
            LastKnownReplica(each.broker_id)
            for each in known
            if each.broker_id != leader and each.broker_id in replicas and not each.is_left
        )
    if leader == NO_LEADER and p.leader != NO_LEADER:
        sometimes("a partition lost its last leader")
    if len(in_sync) >= min(rules.min_insync, len(replicas)):
        # Once writes are acknowledged again, replicas outside the in-sync set no longer have everything (KIP-966).
        eligible, known = (), ()
    is_shrunk = is_done and len(replicas) < len(p.replicas)
    if is_done:
        sometimes("a move of replicas came to its end")
    changed = replace(
        p,
        replicas=replicas,
        isr=in_sync,
        leader=leader,
        # A removed replica may come back: its delayed requests must not count as progress of the new one.
        leader_epoch=p.leader_epoch + (leader != p.leader or is_shrunk),
        elr=eligible,
        adding=() if is_done else p.adding,
        removing=() if is_done else p.removing,
        last_known_leader=last_known if leader == NO_LEADER else NO_LEADER,
        last_known_elr=known,
    )
    return p if changed == p else replace(changed, partition_epoch=p.partition_epoch + 1)


def staying_in_sync(p: PartitionImage, in_sync: Collection[int], min_insync: int) -> tuple[int, ...]:
    """The in-sync set after the reassignment, or an empty one while the reassignment must not end.

    It ends when all added replicas are in sync, and as many of those that stay as the minimum requires. Otherwise a
    replica that is taken away, although it has just ended, may be needed for its copy.
    """
    staying = tuple(b for b in in_sync if b not in p.removing)
    target = len(p.replicas) - len(p.removing)
    is_enough = len(staying) >= min(min_insync, target)
    return staying if is_enough and set(p.adding) - set(p.removing) <= set(staying) else ()


def _finish_reassignment(
    p: PartitionImage, in_sync: tuple[int, ...], min_insync: int
) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
    """Replicas, in-sync set, and whether the reassignment ended; if it did, both are without the removed ones."""
    staying = staying_in_sync(p, in_sync, min_insync) if p.adding or p.removing else ()
    if not staying:
        return p.replicas, in_sync, False
    return tuple(b for b in p.replicas if b not in p.removing), staying, True


def _last_known_elr(
    before: tuple[LastKnownReplica, ...],
    had_all: set[int],
    unclean: Collection[int],
    wiped: Collection[int],
    recovered: Recovered | None,
) -> tuple[LastKnownReplica, ...]:
    """Replicas that had everything and then ended uncleanly.

    A replica whose report shows that it still has everything moves to `had_all`, which is changed in place.
    """
    known = {each.broker_id: each for each in before}
    for broker in unclean:
        if broker in had_all or broker in known:
            # Its earlier report no longer counts; it has to report again.
            is_left = broker in known and known[broker].is_left and broker not in had_all
            known[broker] = LastKnownReplica(broker, is_left=is_left)
        if broker in wiped:
            known.pop(broker, None)
    if recovered is not None and recovered.has.broker_id in known:
        broker = recovered.has.broker_id
        if recovered.is_whole and not known[broker].is_left:
            del known[broker]
            had_all.add(broker)
        else:
            known[broker] = replace(recovered.has, is_left=known[broker].is_left)
    return tuple(known[broker] for broker in sorted(known))


def _remaining(replicas: tuple[int, ...], wiped: Collection[int]) -> tuple[LastKnownReplica, ...]:
    """The replicas to compare after all that had everything were removed permanently, with their disks.

    They report their logs, and the best one leads. If none remains, the partition starts empty when a broker with a
    replica's id is back.
    """
    left = [each for each in replicas if each not in wiped] or replicas
    return tuple(LastKnownReplica(each, is_left=True) for each in sorted(left))


def _best_of(
    known: tuple[LastKnownReplica, ...],
    eligible: int,
    replicas: tuple[int, ...],
    brokers: Mapping[int, BrokerImage],
) -> int | None:
    """The usable replica with the best log, once enough replicas have reported; otherwise None.

    A log that ends with a later epoch has everything committed before that epoch; of two that end with the same epoch,
    the longer one contains the shorter.
    """
    reports = {each.broker_id: (each.last_epoch, each.end_offset) for each in known if each.end_offset >= 0}
    if not reports or len(reports) < min(_ENOUGH_REPORTS, eligible + len(known)):
        return None
    most = max(reports.values())
    return next((b for b in replicas if reports.get(b) == most and is_usable(brokers, b)), None)


def _elect(
    current: int,
    replicas: tuple[int, ...],
    in_sync: tuple[int, ...],
    eligible: tuple[int, ...],
    known: tuple[LastKnownReplica, ...],
    best: int | None,
    last_known: int,
    brokers: Mapping[int, BrokerImage],
    rules: TopicRules,
    seek: Seek,
) -> int:
    if seek is Seek.PREFERRED and replicas[0] in in_sync:
        return replicas[0]
    if current in in_sync:
        return current
    candidates = [b for b in replicas if is_usable(brokers, b)]
    for chosen in (in_sync, eligible):
        for broker in candidates:
            if broker in chosen:
                return broker
    if best is not None:
        return best
    if not eligible and not known and last_known in candidates:
        # Metadata of a version that did not record who else had everything.
        return last_known
    if candidates and (rules.allows_unclean or seek is Seek.UNCLEAN):
        ends = {each.broker_id: (each.last_epoch, each.end_offset) for each in known}
        return max(candidates, key=lambda b: ends.get(b, (-1, -1)))
    return NO_LEADER
