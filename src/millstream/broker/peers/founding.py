"""How nodes that belong to no cluster become one, decided from what the seeds say of themselves.

The first of the seeds, and no other, founds the cluster: two founders could make two. It waits until a majority of the
seeds is there and none of them knows of a cluster, so a founder that lost its disk finds the cluster that it founded.
Whoever comes later is let in by the controller.
"""

from collections.abc import Mapping

import msgspec

from millstream.broker.peers.errors import CannotJoin
from millstream.broker.peers.hello import Welcome
from millstream.cluster.raft.membership import ReplicaKey
from millstream.cluster.raft.quorum import majority

# With a majority there, the others have this long to be among the first members.
GRACE_SECONDS = 2.0


class Join(msgspec.Struct, frozen=True):
    """There is a cluster, or somebody else founds it: wait to be let in."""


class Found(msgspec.Struct, frozen=True):
    voters: tuple[ReplicaKey, ...]


def next_step(
    me: ReplicaKey, seeds: tuple[str, ...], answers: Mapping[str, Welcome], waited_seconds: float
) -> Join | Found | None:
    """What to do now, None for waiting on; `answers` are by seed, `waited_seconds` since there was a majority."""
    if any(each.members for each in answers.values()):
        return Join()
    for seed, each in answers.items():
        if each.seeds != seeds:
            raise CannotJoin(
                f"the node at {seed} was started with --seeds {','.join(each.seeds)} and this one with"
                f" {','.join(seeds)}; give every node the same"
            )
    first = answers.get(seeds[0])
    if first is None:
        return None
    if first.replica != me:
        return Join()
    replicas = {each.replica for each in answers.values()}
    if len({replica.node_id for replica in replicas}) < len(replicas):
        raise CannotJoin("two of the seeds have the same id; give every node an id of its own with --node-id")
    if len(replicas) == len(seeds) or (has_majority(seeds, answers) and waited_seconds >= GRACE_SECONDS):
        return Found(tuple(sorted(replicas)))
    return None


def has_majority(seeds: tuple[str, ...], answers: Mapping[str, Welcome]) -> bool:
    return len({each.replica for each in answers.values()}) >= majority(len(seeds))
