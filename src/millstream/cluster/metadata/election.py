"""Who leads a partition after something happened to its replicas, and who is in sync: pure, one partition at a time."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from millstream.cluster.metadata.image import (
    NO_LEADER,
    BrokerImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
)

_NOBODY: frozenset[int] = frozenset()


class Seek(Enum):
    """When another leader than the one there is gets looked for."""

    IF_NEEDED = 0
    PREFERRED = 1
    """The first of the replicas, if it is in sync; otherwise all stays as it is."""
    UNCLEAN = 2
    """As IF_NEEDED, but any replica that is alive will do, whatever the topic's settings say."""


@dataclass(frozen=True, slots=True)
class TopicRules:
    min_insync: int
    """Not yet capped at the number of a partition's replicas."""
    allows_unclean: bool


@dataclass(frozen=True, slots=True)
class Losses:
    """Brokers that came back without a clean stop, and those of them whose disk is another one."""

    unclean: Collection[int] = _NOBODY
    wiped: Collection[int] = _NOBODY


NO_LOSSES = Losses()


def rules_of(image: MetadataImage, topic: TopicImage) -> TopicRules:
    """As set on the topic, or for all brokers while they run: files of single brokers are not known here.

    Where nothing is set the minimum counts as 1: a replica is then held eligible too rarely, never wrongly.
    """
    key = "unclean.leader.election.enable"
    unclean = topic.configs.get(key) or image.broker_configs.get("", {}).get(key) or "false"
    return TopicRules(_min_insync(image, topic), unclean.lower() == "true")


def min_insync(image: MetadataImage, topic: TopicImage) -> int:
    """How many must be in sync before anything is acknowledged; at most the topic's replicas."""
    factor = max((len(p.replicas) for p in topic.partitions), default=1)
    return min(_min_insync(image, topic), factor)


def _min_insync(image: MetadataImage, topic: TopicImage) -> int:
    key = "min.insync.replicas"
    own = topic.configs.get(key)
    if own is not None:
        return int(own)
    shared = image.broker_configs.get("", {}).get(key)
    if shared is None:
        return 1
    # A broker may have a value of its own: the lowest is what no leader goes below.
    values = [configs[key] for configs in image.broker_configs.values() if key in configs]
    return min(map(int, values))


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
    seek: Seek = Seek.IF_NEEDED,
) -> PartitionImage:
    """The partition as it must be among these brokers, `p` itself where nothing changes.

    `isr` is what the leader reports or a reassignment leaves; without it, it is what `p` has, less those that are gone.
    """
    # A partition with one replica has nobody else to ask: what its broker still has is what there is.
    unclean = losses.unclean if len(p.replicas) > 1 else _NOBODY
    wanted = p.isr if isr is None else isr
    in_sync = tuple(b for b in wanted if b not in unclean and is_usable(brokers, b))
    replicas, in_sync, is_done = _finish_reassignment(p, in_sync)
    had_all = {*p.isr, *p.elr, *wanted}
    eligible = tuple(b for b in replicas if b in had_all and b not in in_sync and b not in unclean)
    last_known = p.last_known_leader if p.leader == NO_LEADER else p.leader
    if last_known in losses.wiped and len(replicas) > 1:
        last_known = NO_LEADER
    leader = _elect(p.leader, replicas, in_sync, eligible, last_known, brokers, rules, seek)
    if leader != NO_LEADER and leader not in in_sync:
        in_sync = (leader,)
        # After an unclean election the others may have what the leader lost, and nobody is sure of anything more.
        eligible = tuple(b for b in eligible if b != leader) if leader in eligible else ()
    if len(in_sync) >= min(rules.min_insync, len(replicas)):
        # Only below the minimum, when nothing is acknowledged any more, do those outside keep all there is (KIP-966).
        eligible = ()
    is_shrunk = is_done and len(replicas) < len(p.replicas)
    changed = replace(
        p,
        replicas=replicas,
        isr=in_sync,
        leader=leader,
        # A replica that went may come back: what it asked for before must not be taken for what it has then.
        leader_epoch=p.leader_epoch + (leader != p.leader or is_shrunk),
        elr=eligible,
        adding=() if is_done else p.adding,
        removing=() if is_done else p.removing,
        last_known_leader=last_known if leader == NO_LEADER else NO_LEADER,
    )
    return p if changed == p else replace(changed, partition_epoch=p.partition_epoch + 1)


def _finish_reassignment(
    p: PartitionImage, in_sync: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
    """Replicas and those in sync, without the leaving ones once everybody that is added has come in."""
    if not p.adding and not p.removing:
        return p.replicas, in_sync, False
    staying = tuple(b for b in in_sync if b not in p.removing)
    if not staying or not set(p.adding) <= set(staying):
        return p.replicas, in_sync, False
    return tuple(b for b in p.replicas if b not in p.removing), staying, True


def _elect(
    current: int,
    replicas: tuple[int, ...],
    in_sync: tuple[int, ...],
    eligible: tuple[int, ...],
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
    if not eligible and last_known in candidates:
        return last_known
    if candidates and (rules.allows_unclean or seek is Seek.UNCLEAN):
        return candidates[0]
    return NO_LEADER
