"""Whatever happens to brokers and partitions, in whatever order: what must hold of every partition at all times.

The model beside the image knows what each replica has of what was acknowledged: a record is acknowledged only with
enough in sync, and everybody in sync has it. Whoever leads by the rules must have all of it, although the disk of one
broker rots, and any may have to cut a torn tail when it starts.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from millstream.cluster.metadata.configs import AlterConfigs, ConfigAlteration, ConfigChange
from millstream.cluster.metadata.difference import difference
from millstream.cluster.metadata.election import min_insync
from millstream.cluster.metadata.image import NO_LEADER, MetadataImage, PartitionImage
from millstream.cluster.metadata.leader_elections import ElectLeaders, RestorePreferredLeaders
from millstream.cluster.metadata.reassignments import AlterReassignments, Reassignment
from millstream.cluster.metadata.records import ConfigResource
from support.replicated import Cluster

BROKERS = (1, 2, 3, 4)
brokers = st.sampled_from(BROKERS)
replica_lists = st.lists(brokers, min_size=1, max_size=4, unique=True)


class Partitions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster(*BROKERS)
        self.has: dict[int, tuple[int, ...]] = dict.fromkeys(BROKERS, ())
        """The leader epochs of the records that each has."""
        self.acknowledged: tuple[int, ...] = ()
        self.doubtful: set[int] = set()
        """They cut their logs when they started, and have not caught up since."""
        self.rotten = 1
        self.seen: PartitionImage | None = None

    @initialize(replicas=replica_lists, minimum=st.integers(2, 4), rotten=brokers)
    def create(self, replicas: list[int], minimum: int, rotten: int) -> None:
        self.rotten = rotten
        self.cluster.create(*replicas, min_insync_replicas=minimum)

    @property
    def p(self) -> PartitionImage:
        return self.cluster.partition()

    # What brokers do

    @rule(broker=brokers)
    def fall_silent(self, broker: int) -> None:
        self.cluster.fence(broker)

    @rule(broker=brokers)
    def beat(self, broker: int) -> None:
        self.cluster.beat(broker)

    @rule(broker=brokers)
    def restart_cleanly(self, broker: int) -> None:
        self.cluster.beat(broker, wants_to_stop=True)
        self.cluster.start_cleanly(broker)

    @rule(broker=brokers)
    def stop(self, broker: int) -> None:
        self.cluster.beat(broker, wants_to_stop=True)

    @rule(broker=brokers, is_torn=st.booleans())
    def restart_after_a_kill(self, broker: int, is_torn: bool) -> None:
        """The disk keeps what was on it: a replica counts only what it has flushed."""
        self.come_back(broker, is_cut=is_torn)

    @precondition(lambda self: self.may_rot)
    @rule(left=st.integers(0, 5), is_let_in=st.booleans())
    def restart_with_rotten_records(self, left: int, is_let_in: bool) -> None:
        self.has[self.rotten] = self.has[self.rotten][:left]
        self.come_back(self.rotten, is_cut=True, is_let_in=is_let_in)

    @property
    def may_rot(self) -> bool:
        """Where one replica is enough, or the only one left to wait for, nobody can have what it loses."""
        p = self.p
        is_enough = min_insync(self.cluster.image, self.cluster.image.topics["t"]) == 1
        return len(p.replicas) > 1 and not is_enough and p.counted_on != {self.rotten}

    @rule(broker=brokers)
    def begin_to_restart(self, broker: int) -> None:
        self.cluster.register(broker)

    def come_back(self, broker: int, *, is_cut: bool, is_let_in: bool = True) -> None:
        if is_cut:
            self.doubtful.add(broker)
        self.cluster.register(broker)
        self.tell(broker)
        if is_let_in:
            self.cluster.beat(broker)

    def tell(self, broker: int) -> None:
        has = self.has[broker]
        end = (has[-1] if has else -1, len(has))
        self.cluster.tell(broker, *end, is_whole=broker not in self.doubtful)

    @precondition(lambda self: self.p.leader == NO_LEADER)
    @rule()
    def tell_again(self) -> None:
        for each in self.p.last_known_elr:
            if self.cluster.image.is_live(each.broker_id):
                self.tell(each.broker_id)

    # What leaders do

    @precondition(lambda self: self.p.leader != NO_LEADER)
    @rule()
    def acknowledge(self) -> None:
        if len(self.p.isr) >= min_insync(self.cluster.image, self.cluster.image.topics["t"]):
            self.acknowledged += (self.p.leader_epoch,)
            self.has.update(dict.fromkeys(self.p.isr, self.acknowledged))

    @precondition(lambda self: self.p.leader != NO_LEADER)
    @rule(data=st.data())
    def change_isr(self, data: st.DataObject) -> None:
        p = self.p
        members = data.draw(st.lists(st.sampled_from(p.replicas), unique=True))
        isr = dict.fromkeys([p.leader, *members])
        before = self.has.copy()
        for broker in isr:
            # It is taken in only when it has caught up.
            self.has[broker] = self.acknowledged
        if self.cluster.set_isr(isr).error not in (0, 108):
            self.has = before

    @rule()
    def catch_up(self) -> None:
        self.doubtful -= set(self.p.isr)

    # What operators do

    @rule(replicas=st.none() | replica_lists)
    def reassign(self, replicas: list[int] | None) -> None:
        target = None if replicas is None else tuple(replicas)
        self.cluster.do(AlterReassignments((Reassignment("t", 0, target),)))

    @rule()
    def prefer(self) -> None:
        self.cluster.do(ElectLeaders(0, (("t", 0),)))

    @rule()
    def rebalance(self) -> None:
        self.cluster.do(RestorePreferredLeaders())

    @rule(minimum=st.integers(2, 4))
    def another_minimum(self, minimum: int) -> None:
        change = ConfigChange("min.insync.replicas", str(minimum))
        self.cluster.do(AlterConfigs((ConfigAlteration(ConfigResource.TOPIC, "t", (change,)),)))

    # What holds

    @invariant()
    def the_sets_fit_together(self) -> None:
        if "t" not in self.cluster.image.topics:
            return
        p, live = self.p, {each.broker_id for each in self.cluster.image.live_brokers}
        assert p.replicas
        assert len(set(p.replicas)) == len(p.replicas)
        assert set(p.isr) <= set(p.replicas)
        assert set(p.elr) <= set(p.replicas)
        assert not set(p.isr) & set(p.elr)
        assert not {*p.isr, *p.elr} & {each.broker_id for each in p.last_known_elr}
        assert p.leader == NO_LEADER or all(each.end_offset < 0 for each in p.last_known_elr)
        assert set(p.isr) <= live
        assert p.leader in (*p.isr, NO_LEADER)
        assert (p.leader == NO_LEADER) == (not p.isr)
        assert set(p.adding) | set(p.removing) <= set(p.replicas)
        assert not set(p.adding) & set(p.removing)
        if len(p.isr) >= min_insync(self.cluster.image, self.cluster.image.topics["t"]):
            assert p.elr == p.last_known_elr == ()

    @invariant()
    def epochs_never_go_back(self) -> None:
        if "t" not in self.cluster.image.topics:
            return
        was, now = self.seen, self.p
        if was is not None and was != now:
            assert now.partition_epoch > was.partition_epoch
            assert now.leader_epoch >= was.leader_epoch
            if now.leader != was.leader:
                assert now.leader_epoch > was.leader_epoch
        self.seen = now

    @invariant()
    def whoever_may_lead_has_all_that_was_acknowledged(self) -> None:
        if "t" not in self.cluster.image.topics:
            return
        for broker in (*self.p.isr, *self.p.elr):
            assert self.has[broker] == self.acknowledged, broker

    @invariant()
    def a_snapshot_says_the_same(self) -> None:
        image = self.cluster.image
        assert MetadataImage().apply(difference(MetadataImage(), image)) == image


TestPartitions = Partitions.TestCase
TestPartitions.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def test_unclean_elections_only_where_somebody_asks() -> None:
    cluster = Cluster(1, 2)
    cluster.create(1, 2)
    assert cluster.set_isr((1,)).error == 0
    cluster.fence(1)
    (outcome,) = cluster.do(ElectLeaders(1, (("t", 0),)))
    assert outcome.error is None
    assert cluster.led() == (2, (2,), ())
