"""The first words of a connection between nodes, repeated as its sign of life."""

from collections.abc import Callable, Collection
from uuid import UUID

import msgspec

from millstream.cluster.raft.membership import MemberKey
from millstream.protocol.wire import MalformedRequest


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """Who is calling. `cluster_id` is empty as long as the node belongs to none, `seeds` are sorted.

    `address` is where the caller is reached: one that is no seed would not be found otherwise.
    """

    cluster_id: str
    member: MemberKey
    seeds: tuple[str, ...]
    address: str = ""


class Welcome(msgspec.Struct, frozen=True, array_like=True):
    """Who answers, or why the caller is not spoken to; `members` are empty where there is no cluster yet.

    `now_ms` is what the clock there says: one that is far from all others is not to be trusted. A caller that
    `is_removed` is refused for good. One that is no member is told where the `controller` is, which lets it in and may
    be none of the seeds. One that belongs to no cluster says of which it has `heard`, and to whom it has `promised` to
    let it found one.
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
        raise MalformedRequest(f"a greeting between nodes that cannot be read: {error}") from error


def decode_welcome(data: bytes | memoryview) -> Welcome:
    return _welcome_decoder.decode(data)


def answer(
    me: Hello,
    members: tuple[MemberKey, ...],
    caller: Hello,
    retired: Collection[UUID] = (),
    is_reached: Callable[[MemberKey], bool] = lambda _member: False,
) -> Welcome:
    """`retired` are the data directories that were removed from the cluster, `is_reached` says who runs right now."""
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
    else:
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
