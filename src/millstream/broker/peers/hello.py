"""The greeting between nodes: the first request on a connection, repeated as a sign of life."""

from collections.abc import Callable, Collection
from uuid import UUID

import msgspec

from millstream.cluster.raft.membership import MemberKey
from millstream.protocol.wire import MalformedRequest


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """The caller. `cluster_id` is empty while the node belongs to no cluster; `seeds` are sorted.

    `address` is where the caller listens for nodes: other nodes would not find a caller that is no seed.
    """

    cluster_id: str
    member: MemberKey
    seeds: tuple[str, ...]
    address: str = ""


class Welcome(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a greeting. `members` is empty without a cluster; `refusal` is why a caller is refused.

    `now_ms` is the answering node's time, by which callers notice a wrong clock. A caller that `is_removed` is refused
    permanently. A caller that is no member gets the address of the `controller`, which lets it in and need not be a
    seed. A node without a cluster reports the cluster it has `heard` of and the founder that it has `promised`.
    """

    cluster_id: str
    member: MemberKey
    seeds: tuple[str, ...]
    members: tuple[MemberKey, ...] = ()
    refusal: str | None = None
    now_ms: int = -1
    is_removed: bool = False
    controller: str = ""
    heard: str = ""
    promised: MemberKey | None = None


_hello_decoder = msgspec.msgpack.Decoder(Hello)
_welcome_decoder = msgspec.msgpack.Decoder(Welcome)
encode = msgspec.msgpack.Encoder().encode


def decode_hello(data: bytes | memoryview) -> Hello:
    try:
        return _hello_decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise MalformedRequest(f"a greeting between nodes cannot be read: {error}") from error


def decode_welcome(data: bytes | memoryview) -> Welcome:
    return _welcome_decoder.decode(data)


def answer(
    me: Hello,
    members: tuple[MemberKey, ...],
    caller: Hello,
    retired: Collection[UUID] = (),
    is_reached: Callable[[MemberKey], bool] = lambda _member: False,
) -> Welcome:
    """`retired` are data directories that were removed from the cluster, `is_reached` tells who is connected now."""
    refusal, is_removed = None, False
    if caller.member.node_id == me.member.node_id and caller.member != me.member:
        refusal = _id_is_taken(me.member)
    elif caller.cluster_id and me.cluster_id and caller.cluster_id != me.cluster_id:
        refusal = (
            f"the node belongs to cluster {me.cluster_id} and the data directory to cluster {caller.cluster_id};"
            " check --seeds and --data"
        )
    elif caller.member.directory_id in retired:
        is_removed = True
        refusal = f"node {caller.member.node_id} was removed from the cluster; it may come back with an empty --data"
    elif caller.member != me.member:
        # A node that greets itself may still know itself with the directory of before it was removed.
        refusal = _known_otherwise(members, caller.member, is_reached)
    return Welcome(me.cluster_id, me.member, me.seeds, members, refusal, is_removed=is_removed)


def _id_is_taken(member: MemberKey) -> str:
    return (
        f"another node has the id {member.node_id} already; give every node an id of its own with --node-id"
    )


def _known_otherwise(
    members: tuple[MemberKey, ...], caller: MemberKey, is_reached: Callable[[MemberKey], bool]
) -> str | None:
    for member in members:
        if member.node_id == caller.node_id and member != caller:
            if is_reached(member):
                return _id_is_taken(member)
            return (
                f"the cluster knows node {caller.node_id} with another data directory, {member.directory_id};"
                f" restore that directory, or give it up with `millstream cluster remove {caller.node_id} --force`"
            )
    return None
