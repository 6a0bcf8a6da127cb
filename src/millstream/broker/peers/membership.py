"""This node as one of several: finding the others, joining or founding the cluster, signs of life, leaving."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from millstream.broker.peers.contact import ContactWatch
from millstream.broker.peers.errors import CannotJoin
from millstream.broker.peers.founder import Founder
from millstream.broker.peers.heartbeats import Heartbeats
from millstream.broker.peers.lease import Lease
from millstream.broker.peers.link import LONGEST_PAUSE
from millstream.broker.peers.network import PeerNetwork
from millstream.broker.peers.promise import Promise
from millstream.broker.peers.waiting import WaitLog, away_of
from millstream.broker.server.addresses import WILDCARDS
from millstream.cluster.founding_messages import (
    AskPromise,
    FoundingRequest,
    FoundWith,
    NodeState,
    PromiseAnswer,
)
from millstream.cluster.metadata.brokers import RegisterBroker
from millstream.cluster.metadata.directory import StoredReplica, create_replica, open_replica
from millstream.cluster.metadata.ids import id_text, readable_ids
from millstream.cluster.metadata.rebalancing import RebalanceSettings
from millstream.cluster.metadata.records import ClusterCreated, Endpoint, encode_records
from millstream.cluster.metadata.service import MetadataService
from millstream.cluster.raft.entries import HardState, Restored, Snapshot, first_snapshot
from millstream.cluster.raft.membership import Membership, ReplicaKey
from millstream.observability.logs import get_logger
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.storage.checkpoint import clean_broker_epoch

if TYPE_CHECKING:
    from millstream.broker.node import Broker

Result = TypeVar("Result")

log = get_logger("millstream.cluster")

_LOOK_SECONDS = 0.05
_TELL_SECONDS = 5.0
_LEAVE_SECONDS = 2.0


class ClusterMembership:
    def __init__(self, broker: "Broker", endpoints: tuple[Endpoint, ...]) -> None:
        if endpoints[0].host in WILDCARDS:
            # What "the address they came by" is only the node itself can say, and clients hear of it from others too.
            raise CannotJoin(
                f"a node of several that listens on {endpoints[0].host} must say where it is reached: set"
                " broker.advertised_host, or give --listen an address of its own"
            )
        self._broker = broker
        self._endpoints = endpoints
        cluster = broker.settings.cluster
        session_seconds = self._session_seconds = cluster.session_timeout / 1000
        self._heartbeat_seconds = cluster.heartbeat_interval / 1000
        seeds = tuple(sorted(set(cluster.bootstrap_servers)))
        self._stored = self._open()
        address = f"{endpoints[0].host}:{endpoints[0].port}"
        self.lease = Lease(
            session_seconds,
            broker.clock.elapsed,
            lambda: broker.metadata.quorum.applied_index,
            lambda: broker.metadata.quorum.is_only_voter,
        )
        self.network = PeerNetwork(
            self._stored.key,
            self._stored.members,
            seeds,
            broker.expiry,
            address,
            elapsed=broker.clock.elapsed,
            # The last one alive must find the others dead again before its lease ends.
            longest_pause=min(LONGEST_PAUSE, self.lease.seconds / 3),
        )
        self._founder = Founder(
            self.network,
            Promise(broker.disk, broker.store.data_dir),
            broker.workers,
            cluster.founding_wait / 1000,
        )
        self._waiting: Callable[[], str] | None = lambda: "the node is starting"
        self.heartbeats = Heartbeats(broker, self.lease)
        self._beating: asyncio.Task[None] | None = None
        self._contact: asyncio.Task[None] | None = None

    def _open(self) -> StoredReplica:
        broker = self._broker
        stored = open_replica(broker.disk, broker.store.data_dir, broker.node_id)
        if stored is None:
            key = ReplicaKey(broker.node_id, broker.host.new_id())
            # With nothing in it: what the cluster begins with comes from whoever founds it.
            stored = create_replica(broker.disk, broker.store.data_dir, key, Snapshot())
        return stored

    async def join(self) -> None:
        """Return when this node is a registered broker, though fenced, of a cluster whose metadata it follows."""
        broker = self._broker
        await broker.server.start()
        self.network.start()
        stored = self._stored
        if not stored.members:
            stored = await self._found_or_join()
        metadata = MetadataService(
            stored,
            transport=self.network,
            forward=self.network.forward,
            session_seconds=self._session_seconds,
            write_refused=broker.writability.found_no_room,
            rebalance=self._rebalance_settings(),
            failed=lambda error: broker.fail(str(error)),
            host=broker.host,
            raft=broker.raft,
            tick_ms=broker.settings.cluster.tick,
            snapshot_after=broker.settings.cluster.snapshot_size,
        )
        broker.metadata = metadata
        self.network.attach(metadata)
        await self._unless_refused(
            metadata.follow(), "waiting for a majority of the cluster's nodes", self._why_no_majority
        )
        metadata.broker_epoch = await self._unless_refused(
            self._register(metadata), "waiting for a controller to register with", self._why_no_majority
        )
        broker.store.broker_epoch = metadata.broker_epoch
        log.info("joined", cluster_id=metadata.image.cluster_id, controller=metadata.controller_id)

    async def tell_recovered(self) -> None:
        """Return when the controller knows what the logs hold on which it cannot count any more without being told."""
        await self._unless_refused(
            self._broker.replication.recovered.tell(),
            "waiting for a controller to hear what was recovered",
            self._why_no_majority,
        )

    def _rebalance_settings(self) -> RebalanceSettings | None:
        replication = self._broker.settings.replication
        if not replication.auto_leader_rebalance:
            return None
        return RebalanceSettings(
            replication.leader_imbalance_check_seconds, replication.leader_imbalance_percentage
        )

    async def serve(self) -> None:
        """Return when the controller knows that clients may come; it is told so for as long as the node runs."""
        self._broker.partitions.has_lease = lambda: self.lease.is_valid
        accepted = asyncio.Event()
        self._beating = asyncio.create_task(self.heartbeats.run(accepted), name="heartbeats")
        await self._unless_refused(
            accepted.wait(), "waiting for a controller to be let in by", self._why_no_majority
        )
        self._waiting = None
        # Nobody else speaks to a removed node any more, not even to say that its registration is gone.
        self.network.removed = self._broker.fail
        watch = ContactWatch(self._broker, self.network, self.lease)
        self._contact = asyncio.create_task(watch.run(), name="contact")

    async def leave(self) -> None:
        """Hand over what this node leads before it stops; given up when nobody answers in time."""
        if self._contact is not None:
            self._contact.cancel()
        if self._beating is not None:
            self._beating.cancel()
            # A last sign of life that is under way must not come after the word that this node leaves.
            await asyncio.gather(self._beating, return_exceptions=True)
            metadata = self._broker.metadata
            with suppress(KafkaError, TimeoutError):
                async with asyncio.timeout(_LEAVE_SECONDS):
                    await metadata.submit(self.heartbeats.last())
            await self._hand_over(metadata)

    async def close(self) -> None:
        await self.network.stop()
        if not self._broker.has_metadata:
            self._stored.wal.close()

    @property
    def waiting_for(self) -> str:
        """Why this node does not serve yet; empty when it does."""
        return "" if self._waiting is None else self._waiting()

    async def founding_asked(self, request: FoundingRequest) -> PromiseAnswer | NodeState:
        """What another node or an operator hears that asks about founding a cluster."""
        if isinstance(request, AskPromise):
            return await self._founder.promise(request)
        if isinstance(request, FoundWith):
            return self._founder.wish(request.node_ids)
        network, promised = self.network, self.network.promised()
        return NodeState(
            network.me.node_id,
            network.cluster_id,
            self.waiting_for,
            tuple((seed, each.replica.node_id) for seed, each in network.seeds_there().items()),
            -1 if promised is None else promised.node_id,
        )

    async def _found_or_join(self) -> StoredReplica:
        founder = self._founder
        voters = await self._unless_refused(
            founder.decide(), "waiting for the other seeds", lambda: founder.waiting_for
        )
        if voters is None:
            return self._stored
        return await self._broker.workers.run(lambda: self._found(voters))

    def _found(self, voters: tuple[ReplicaKey, ...]) -> StoredReplica:
        cluster_id = id_text(readable_ids(self._broker.host.new_id)())
        first = first_snapshot(Membership(voters), encode_records([ClusterCreated(cluster_id)]))
        state = Restored(HardState(), first)
        self._stored.wal.start_from(state)
        log.info("cluster founded", cluster_id=cluster_id, nodes=[voter.node_id for voter in voters])
        return replace(self._stored, restored=state)

    def _why_no_majority(self) -> str:
        network = self.network
        return self._founder.why_not_founded() or away_of(network.members, network.me, network.is_reached)

    async def _register(self, metadata: MetadataService) -> int:
        broker = self._broker
        stopped_in = await broker.workers.run(lambda: clean_broker_epoch(broker.disk, broker.store.data_dir))
        command = RegisterBroker(
            broker.node_id,
            self._endpoints,
            broker.settings.broker.rack,
            is_fenced=True,
            previous_epoch=stopped_in,
            directory=self._stored.key.directory_id,
            min_insync=int(broker.settings.broker_configs().get("min.insync.replicas", 1)),
        )
        while True:
            try:
                return await metadata.submit(command)
            except KafkaError as error:
                if error.code is ErrorCode.INVALID_REGISTRATION:
                    raise CannotJoin(error.message) from error
                log.warning("not registered yet", error=error.message)
                await asyncio.sleep(self._heartbeat_seconds)

    async def _hand_over(self, metadata: MetadataService) -> None:
        """An orderly change of leader takes milliseconds, an election by silence most of a second."""
        status = metadata.quorum.status()
        others = [
            each for each in status.followers if each.is_active and each.replica in status.membership.voters
        ]
        if not metadata.is_controller or not others:
            return
        with suppress(Exception):
            metadata.quorum.transfer_leadership(max(others, key=lambda each: each.match_index).replica)
            async with asyncio.timeout(_LEAVE_SECONDS):
                while metadata.is_controller:  # noqa: ASYNC110 - the listener is the service's
                    await asyncio.sleep(_LOOK_SECONDS / 10)

    async def _unless_refused(
        self, work: Coroutine[Any, Any, Result], waiting: str, reason: Callable[[], str]
    ) -> Result:
        """The result of `work`, which may wait for others for ever, unless they will not have this node."""
        task, failure = asyncio.ensure_future(work), self._broker.failure
        refused = asyncio.ensure_future(self.network.refused.wait())
        told = WaitLog(asyncio.get_running_loop().time)
        self._waiting = lambda: f"{waiting}: {reason()}"
        try:
            while True:
                done, _ = await asyncio.wait(
                    (task, refused, failure), timeout=_TELL_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if task in done:
                    return task.result()
                if refused in done:
                    raise CannotJoin(str(self.network.refusal))
                if done:
                    raise CannotJoin(str(failure.exception()))
                told.lasts(waiting, reason())
        finally:
            task.cancel()
            refused.cancel()
