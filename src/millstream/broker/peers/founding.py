"""Decides how nodes without a cluster found one: pure functions of what the nodes report.

A cluster must be founded only once. It is founded automatically only when every seed is reached and none of them knows
a cluster, its own or one that a caller reported. An operator may found it with fewer seeds, at least a majority. The
founder first gets a promise from each initial member; a member promises one founder only, durably. Two foundings would
share a seed, and only one of them could get its promise.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from millstream.broker.peers.hello import Welcome
from millstream.cluster.raft.membership import MemberKey, majority


class KnownCluster(msgspec.Struct, frozen=True):
    """A cluster that a node reported, and that node."""

    cluster_id: str
    node_id: int
    address: str


class Situation(msgspec.Struct, frozen=True):
    """What a node without a cluster knows.

    `there` holds the newest answers of the seeds that are reached now, `answers` those of all nodes that ever answered.
    `promised` is the founder that has this node's promise.
    """

    me: MemberKey
    seeds: tuple[str, ...]
    there: Mapping[str, Welcome]
    answers: Collection[Welcome] = ()
    known: KnownCluster | None = None
    promised: MemberKey | None = None

    @property
    def missing(self) -> list[str]:
        return [seed for seed in self.seeds if seed not in self.there]


class Join(msgspec.Struct, frozen=True):
    """A cluster exists, or another node founds it: wait to be let in."""


class Propose(msgspec.Struct, frozen=True):
    """Ask these nodes for their promise."""

    voters: tuple[MemberKey, ...]


class Wait(msgspec.Struct, frozen=True):
    """`reason` says what is missing, and what an operator can do."""

    reason: str


def next_step(now: Situation) -> Join | Propose | Wait:
    if any(each.members for each in now.answers) or now.promised not in (None, now.me):
        return Join()
    if known := _known_cluster(now):
        return Wait(_other_cluster(known))
    _require_same_seeds(now)
    if now.missing or all(each.member != now.me for each in now.there.values()):
        return Wait(_missing_seeds(now))
    members = _distinct(now.there.values())
    if len(members) < len(now.seeds):
        return Wait(
            f"of the seeds {', '.join(now.seeds)} two are one node; give each node an address of its own"
        )
    founder = _founder(members, now.there.values())
    if founder != now.me:
        return Wait(f"node {founder.node_id} founds the cluster")
    return Propose(tuple(sorted(members)))


def chosen_voters(now: Situation, node_ids: Collection[int]) -> tuple[MemberKey, ...]:
    """The initial voters that an operator chose; CannotFound where that could make a second cluster, or none."""
    if any(each.members for each in now.answers):
        raise CannotFound("there is a cluster already, and this node waits to be let in")
    if known := _known_cluster(now):
        raise CannotFound(_other_cluster(known))
    _require_same_seeds(now)
    found = {each.member.node_id: each.member for each in now.there.values()}
    if absent := sorted(set(node_ids) - found.keys()):
        raise CannotFound(
            f"node {', '.join(map(str, absent))} is not among the seeds that answer; these are"
            f" {', '.join(map(str, sorted(found)))}"
        )
    if now.me.node_id not in node_ids:
        raise CannotFound(f"node {now.me.node_id} was asked and is not one of them; ask one that is")
    if len(set(node_ids)) < majority(len(now.seeds)):
        raise CannotFound(
            f"a cluster of {len(now.seeds)} seeds is founded with at least {majority(len(now.seeds))} of them, so that"
            " the others cannot found a second one; start more of them, or start all nodes with other --seeds"
        )
    if now.promised not in (None, now.me):
        raise CannotFound(waits_for_founder(now.promised))
    return tuple(sorted(found[node_id] for node_id in set(node_ids)))


def refusal_to_promise(now: Situation, founder: MemberKey, voters: Collection[MemberKey]) -> str | None:
    """Why this node refuses `founder` its promise; None where it gives it.

    A promise moves to another founder only if the first founder has itself promised that one, and so founds nothing.
    """
    node = f"node {now.me.node_id}"
    if any(each.members for each in now.answers):
        return f"{node} knows of a cluster"
    if known := _known_cluster(now):
        return f"{node}: {_other_cluster(known)}"
    if now.me not in voters:
        return f"{node} has another data directory by now"
    if now.promised in (None, now.me, founder):
        return None
    if any(each.member == now.promised and each.promised == founder for each in now.there.values()):
        return None
    return f"{node}: {waits_for_founder(now.promised)}"


def waits_for_founder(founder: MemberKey) -> str:
    return (
        f"node {founder.node_id} began to found the cluster with the data directory {founder.directory_id}; start it"
        " with that. If that directory is lost, empty --data of the nodes that wait, which hold nothing yet, and start"
        " them again"
    )


def _known_cluster(now: Situation) -> KnownCluster | None:
    """A cluster that was reported to this node, or that a seed knows."""
    if now.known is not None:
        return now.known
    for seed, each in now.there.items():
        if each.heard or each.cluster_id:
            return KnownCluster(each.heard or each.cluster_id, each.member.node_id, seed)
    return None


def _other_cluster(known: KnownCluster) -> str:
    return (
        f"node {known.node_id} at {known.address} knows of cluster {known.cluster_id}, so none is founded; this node"
        " waits to be let in there. If that is another cluster, correct --seeds of the nodes that know it, and start"
        " this one again"
    )


def _missing_seeds(now: Situation) -> str:
    if not now.missing:
        return f"the seeds {', '.join(now.seeds)} know of no cluster yet, and found one without this node"
    names = ", ".join(now.missing)
    reason = f"the seeds that do not answer: {names}; a new cluster is founded when all are there: start them"
    here = sorted({each.member.node_id for each in now.there.values()})
    if len(here) < majority(len(now.seeds)) or now.me.node_id not in here:
        return reason
    return (
        f"{reason}, or found it without them: `millstream cluster found --with {','.join(map(str, here))}"
        f" --bootstrap {next(iter(now.there))}`"
    )


def _founder(members: Collection[MemberKey], answers: Iterable[Welcome]) -> MemberKey:
    """The lowest of those that have a promise already, else the lowest of all: every seed chooses the same."""
    promised = {each.promised for each in answers if each.promised in members}
    return min((each for each in promised if each is not None), default=min(members))


def _require_same_seeds(now: Situation) -> None:
    for seed, each in now.there.items():
        if each.seeds != now.seeds:
            raise CannotJoin(
                f"the node at {seed} was started with --seeds {','.join(each.seeds)} and this one with"
                f" {','.join(now.seeds)}; give every node the same"
            )


def _distinct(answers: Iterable[Welcome]) -> set[MemberKey]:
    members = {each.member for each in answers}
    if len({member.node_id for member in members}) < len(members):
        raise CannotJoin("two of the seeds have the same id; give every node an id of its own with --node-id")
    return members


class CannotJoin(Exception):
    """The other nodes refuse this one, or contradict each other; the message says what to do."""


class CannotFound(Exception):
    """An operator's request to found a cluster is refused; the message says why."""


def away_of(members: Iterable[MemberKey], me: MemberKey, is_reached: Callable[[MemberKey], bool]) -> str:
    """Which members of the quorum do not answer, and what to do."""
    away = sorted(each.node_id for each in members if each != me and not is_reached(each))
    if not away:
        return "the nodes are connected and agree on who leads"
    return f"of the cluster's nodes these do not answer: {', '.join(map(str, away))}; start them"
