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

# Of replicas that ended uncleanly and may have lost records, so many are compared: one disk may rot, not two at once.
_ENOUGH_TOLD = 2

_NOBODY: frozenset[int] = frozenset()
_MIN_INSYNC = "min.insync.replicas"


class Seek(Enum):
    """When a new leader is looked for."""

    IF_NEEDED = 0
    PREFERRED = 1
    """The first of the replicas, if it is in sync; otherwise all stays as it is."""
    UNCLEAN = 2
    """As IF_NEEDED, but any replica that is alive will do, whatever the topic's settings say."""


class TopicRules(msgspec.Struct, frozen=True):
    min_insync: int
    """Not yet capped at the number of a partition's replicas."""
    allows_unclean: bool


class Losses(msgspec.Struct, frozen=True):
    """Brokers that came back without a clean stop, and those of them whose disk is another one."""

    unclean: Collection[int] = _NOBODY
    wiped: Collection[int] = _NOBODY


NO_LOSSES = Losses()


class Recovered(msgspec.Struct, frozen=True):
    """What a broker that ended uncleanly has of a partition; `is_whole` where that is all that it had confirmed."""

    has: LastKnownReplica
    is_whole: bool


def rules_of(image: MetadataImage, topic: TopicImage) -> TopicRules:
    """The minimum as set on the topic, or else the lowest of all brokers: no leader goes below it.

    Unclean elections are allowed by the topic or for all brokers while they run, not by files of single brokers.
    """
    key = "unclean.leader.election.enable"
    unclean = topic.configs.get(key) or image.broker_configs.get("", {}).get(key) or "false"
    return TopicRules(_min_insync(image, topic), unclean.lower() == "true")


def min_insync(image: MetadataImage, topic: TopicImage) -> int:
    """How many must be in sync before anything is acknowledged; at most the topic's replicas."""
    factor = max((len(p.replicas) for p in topic.partitions), default=1)
    return min(_min_insync(image, topic), factor)


def _min_insync(image: MetadataImage, topic: TopicImage) -> int:
    own = topic.configs.get(_MIN_INSYNC)
    return int(own) if own is not None else lowest_min_insync(image)


def lowest_min_insync(image: MetadataImage) -> int:
    """Of topics that set none: brokers go by what was set while they run, or else by their files."""
    shared = image.broker_configs.get("", {}).get(_MIN_INSYNC)
    values = [
        image.broker_configs.get(str(broker.broker_id), {}).get(_MIN_INSYNC) or shared or broker.min_insync
        for broker in image.brokers.values()
    ]
    return min(map(int, values), default=1)


def is_usable(brokers: Mapping[int, BrokerImage], broker_id: int) -> bool:
    """Alive, let in, and not about to leave."""
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
    """The partition as it must be among these brokers, `p` itself where nothing changes.

    `isr` is what the leader reports or a reassignment leaves; without it, it is what `p` has, less those that are gone.
    `may_end_move` at the leader's word: all that a reassignment takes out of the in-sync set know who leads, so none of
    them answers reads as a leader.
    """
    # A partition with one replica has no other to ask: it goes on with what its broker still has.
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
        known = _what_is_left(replicas, losses.wiped)
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
            # After an unclean election other replicas may have what the leader lost: none is known to have everything.
            eligible, known = (), ()
        eligible = tuple(b for b in eligible if b != leader and b in replicas)
    if leader != NO_LEADER:
        # Their logs change as they fetch: when the leader is gone, they report them again.
        known = tuple(
            LastKnownReplica(each.broker_id)
            for each in known
            if each.broker_id != leader and each.broker_id in replicas and not each.is_left
        )
    if leader == NO_LEADER and p.leader != NO_LEADER:
        sometimes("a partition lost its last leader")
    if len(in_sync) >= min(rules.min_insync, len(replicas)):
        # Replicas outside of the in-sync set keep everything only while it is below the minimum, when nothing is
        # acknowledged (KIP-966).
        eligible, known = (), ()
    is_shrunk = is_done and len(replicas) < len(p.replicas)
    if is_done:
        sometimes("a move of replicas came to its end")
    changed = replace(
        p,
        replicas=replicas,
        isr=in_sync,
        leader=leader,
        # A replica that left may come back: an earlier request of it must not be taken for what it has then.
        leader_epoch=p.leader_epoch + (leader != p.leader or is_shrunk),
        elr=eligible,
        adding=() if is_done else p.adding,
        removing=() if is_done else p.removing,
        last_known_leader=last_known if leader == NO_LEADER else NO_LEADER,
        last_known_elr=known,
    )
    return p if changed == p else replace(changed, partition_epoch=p.partition_epoch + 1)


def staying_in_sync(p: PartitionImage, in_sync: Collection[int], min_insync: int) -> tuple[int, ...]:
    """Who is in sync when the partition's reassignment ends; none while it must not end.

    Everybody that is added has come in, and the minimum is kept without those that leave, where it is kept with them.
    """
    staying = tuple(b for b in in_sync if b not in p.removing)
    target = len(p.replicas) - len(p.removing)
    is_enough = len(staying) >= min(min_insync, target, len(in_sync))
    return staying if is_enough and set(p.adding) <= set(staying) else ()


def _finish_reassignment(
    p: PartitionImage, in_sync: tuple[int, ...], min_insync: int
) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
    """Replicas and those in sync, without the leaving ones where the reassignment may end."""
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
    """Those that had all and ended uncleanly; one that shows that it still has all goes from there to `had_all`."""
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


def _what_is_left(replicas: tuple[int, ...], wiped: Collection[int]) -> tuple[LastKnownReplica, ...]:
    """All replicas that had everything were given up for good, disks included: waiting for them would never end.

    The others report what they have, and the one with most leads. Where none is left the partition begins with nothing
    when a broker of that id is there again.
    """
    left = [each for each in replicas if each not in wiped] or replicas
    return tuple(LastKnownReplica(each, is_left=True) for each in sorted(left))


def _best_of(
    known: tuple[LastKnownReplica, ...],
    eligible: int,
    replicas: tuple[int, ...],
    brokers: Mapping[int, BrokerImage],
) -> int | None:
    """The one that has most of what was acknowledged, where enough have told; None also while it is away.

    The log that ends with the later epoch has all that was committed before that epoch; of two that end with the same
    the longer has all of the shorter.
    """
    told = {each.broker_id: (each.last_epoch, each.end_offset) for each in known if each.end_offset >= 0}
    if not told or len(told) < min(_ENOUGH_TOLD, eligible + len(known)):
        return None
    most = max(told.values())
    return next((b for b in replicas if told.get(b) == most and is_usable(brokers, b)), None)


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
        # The metadata is of a version that did not know who else had all.
        return last_known
    if candidates and (rules.allows_unclean or seek is Seek.UNCLEAN):
        ends = {each.broker_id: (each.last_epoch, each.end_offset) for each in known}
        return max(candidates, key=lambda b: ends.get(b, (-1, -1)))
    return NO_LEADER
