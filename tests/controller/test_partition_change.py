"""Any sequence of crashes, returns, ISR changes, reassignments and settings over the logs of one partition: no decision
lets a replica lead that lacks committed records, unless the last leader is the best that is left."""

from typing import NamedTuple
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.config.log_config import LogConfig
from barnabas.controller.partition_change import Brokers, Candidates, next_state
from barnabas.controller.reassignment_control import Reassignment, alter_reassignments
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import EMPTY_IMAGE, NO_LEADER, BrokerImage, PartitionImage, TopicImage
from barnabas.registry.registry import SetPartition
from barnabas.types import BrokerId, LeaderEpoch

BROKERS = tuple(map(BrokerId, (1, 2, 3, 4)))
brokers = st.sampled_from(BROKERS)


class Metadata(NamedTuple):
    """What the controller has decided, as it is pushed to brokers."""

    partition: PartitionImage
    min_insync_replicas: int


class Replica:
    """A replica's process: its log, and the metadata that it knows. Records are numbers, so a log is a list of them."""

    def __init__(self, log: list[int], metadata: Metadata) -> None:
        self.log = log
        self.metadata = metadata
        self.high_watermark = 0
        self.epoch_start = len(log)
        self.fetched: dict[BrokerId, int] = {}
        """The offsets of followers in the present leader epoch."""
        self.proposed: tuple[BrokerId, ...] = ()

    def learn(self, metadata: Metadata) -> None:
        if metadata.partition.leader_epoch != self.metadata.partition.leader_epoch:
            self.fetched = {}
            self.epoch_start = len(self.log)
        if metadata != self.metadata:
            self.proposed = ()
        self.metadata = metadata


class PartitionModel(RuleBasedStateMachine):
    """Brokers learn of decisions late, a leader commits by what it knows, and a crash may take the end of a log."""

    @initialize(
        replicas=st.lists(brokers, min_size=1, max_size=3, unique=True).map(tuple),
        min_insync_replicas=st.integers(1, 3),
        unclean_allowed=st.sampled_from([False, False, True]),
    )
    def start(self, replicas: tuple[BrokerId, ...], min_insync_replicas: int, unclean_allowed: bool) -> None:
        self.unclean_allowed = unclean_allowed
        self.partition = PartitionImage(replicas[0], LeaderEpoch(0), replicas, replicas)
        self.min_insync_replicas = min_insync_replicas
        self.active = set(BROKERS)
        self.returned: dict[BrokerId, str] = {}
        """How fenced brokers have returned."""
        self.dead: set[BrokerId] = set()
        self.damaged: set[BrokerId] = set()
        """Replicas that have lost the end of their log, and were not in an ISR since."""
        self.emptied: set[BrokerId] = set()
        """Those of them that have lost all."""
        self.replicas = {node_id: Replica([], self.metadata) for node_id in BROKERS}
        self.committed: list[int] = []
        self.next_record = 0

    @property
    def metadata(self) -> Metadata:
        return Metadata(self.partition, self.min_insync_replicas)

    # -- decisions --------------------------------------------------------------------------------------------------

    def decide(
        self,
        isr: tuple[BrokerId, ...] | None = None,
        candidates: Candidates | None = None,
    ) -> PartitionImage:
        clean = Candidates.UNCLEAN if self.unclean_allowed else Candidates.CLEAN
        fenced = {how: frozenset(n for n, each in self.returned.items() if each == how) for how in ("unclean", "lost")}
        return next_state(
            self.partition,
            Brokers(frozenset(self.active), fenced["unclean"], fenced["lost"]),
            self.min_insync_replicas,
            isr=isr,
            candidates=candidates or clean,
        )

    def apply(self, following: PartitionImage) -> None:
        before, self.partition = self.partition, following
        if following.leader == before.leader:
            self.damaged -= set(following.isr)
            self.emptied -= set(following.isr)
        if following.leader not in (before.leader, NO_LEADER):
            self.check_elected(before, following.leader)
        assert following.leader_epoch - before.leader_epoch == (
            following.leader != before.leader or not set(before.replicas) <= set(following.replicas)
        )
        assert following.partition_epoch == before.partition_epoch + (following != before)

    def check_elected(self, before: PartitionImage, leader: BrokerId) -> None:
        log = self.replicas[leader].log
        if log[: len(self.committed)] == self.committed:
            return
        if not self.unclean_allowed:
            assert leader in self.damaged, f"{leader} lacks committed records"
            assert before.isr == before.elr == () or len(before.replicas) == 1, "another one may have them"
            assert before.last_known_elr == (leader,)
            assert leader not in self.emptied or len(before.replicas) == 1, "others have more than nothing"
        self.committed = [record for record, other in zip(self.committed, log, strict=False) if record == other]

    # -- brokers ----------------------------------------------------------------------------------------------------

    @rule(node_id=brokers, dies=st.booleans())
    def fence(self, node_id: BrokerId, dies: bool) -> None:
        """A broker dies, or the controller suspects it, and it may go on all the same."""
        if dies:
            self.dead.add(node_id)
        self.active.discard(node_id)
        self.apply(self.decide())

    @rule(node_id=brokers, how=st.sampled_from(["", "unclean", "lost"]), kept=st.integers(0, 3))
    def return_to_cluster(self, node_id: BrokerId, how: str, kept: int) -> None:
        """A broker registers again, after a crash or at once, and is fenced."""
        log = self.replicas[node_id].log

        if how == "unclean":
            log = log[:kept]
        elif how == "lost":
            log = []
            self.emptied.add(node_id)
        if how:
            self.damaged.add(node_id)
        self.dead.discard(node_id)
        self.active.discard(node_id)
        self.returned[node_id] = how
        self.apply(self.decide())
        self.replicas[node_id] = Replica(log, self.metadata)

    @rule()
    def all_come_back(self) -> None:
        for node_id in self.partition.replicas:
            if node_id not in self.active and node_id not in self.dead:
                self.unfence(node_id)

    @rule(node_id=brokers)
    def unfence(self, node_id: BrokerId) -> None:
        if node_id in self.dead:
            return
        self.returned.pop(node_id, None)
        self.active.add(node_id)
        self.apply(self.decide())

    @rule(node_id=brokers)
    def learn(self, node_id: BrokerId) -> None:
        self.replicas[node_id].learn(self.metadata)

    # -- the leader and its followers -------------------------------------------------------------------------------

    def leads(self, node_id: BrokerId) -> bool:
        return node_id not in self.dead and self.replicas[node_id].metadata.partition.leader == node_id

    @rule(node_id=brokers)
    def append(self, node_id: BrokerId) -> None:
        if self.leads(node_id):
            self.next_record += 1
            self.replicas[node_id].log.append(self.next_record)
            self.commit(node_id)

    @rule(leader=brokers, follower=brokers, count=st.integers(0, 5))
    def fetch(self, leader: BrokerId, follower: BrokerId, count: int) -> None:
        """A fetch that truncates what differs, and one that says what the follower has then."""
        source, sink = self.replicas[leader], self.replicas[follower]
        same_epoch = source.metadata.partition.leader_epoch == sink.metadata.partition.leader_epoch
        known = follower in source.metadata.partition.replicas
        if leader == follower or not same_epoch or not known or not self.leads(leader) or follower in self.dead:
            return
        common = 0
        while common < min(len(source.log), len(sink.log)) and source.log[common] == sink.log[common]:
            common += 1
        sink.log = source.log[: common + count]
        source.fetched[follower] = len(sink.log)
        self.commit(leader)

    @rule(left_out=st.sets(brokers, max_size=2))
    def replicate(self, left_out: set[BrokerId]) -> None:
        """All but some brokers learn of the decisions, and have the same log afterwards, with one record more."""
        for node_id in set(BROKERS) - self.dead - left_out:
            self.learn(node_id)
        leader = self.partition.leader
        if leader == NO_LEADER or leader in left_out:
            return
        self.append(leader)
        for follower in set(self.partition.replicas) - left_out:
            self.fetch(leader, follower, 100)

    def commit(self, leader: BrokerId) -> None:
        replica = self.replicas[leader]
        partition, minimum = replica.metadata
        added = set(partition.adding_replicas) - set(partition.isr)
        if len(partition.isr) < min(minimum, len(partition.replicas) - len(added)):
            return
        members = {*partition.isr, *replica.proposed} - {leader}
        end = min([len(replica.log), *(replica.fetched.get(member, 0) for member in members)])
        replica.high_watermark = max(replica.high_watermark, end)
        agrees = self.committed[:end] == replica.log[: min(end, len(self.committed))]
        assert agrees or self.unclean_allowed, "two leaders have committed"
        if end > len(self.committed) or not agrees:
            self.committed = replica.log[:end]

    @rule(leader=brokers, wanted=st.sets(brokers))
    def propose_isr(self, leader: BrokerId, wanted: set[BrokerId]) -> None:
        replica = self.replicas[leader]
        partition = replica.metadata.partition
        if not self.leads(leader):
            return
        able = {
            member
            for member, offset in replica.fetched.items()
            if offset >= max(replica.high_watermark, replica.epoch_start) and member in self.active
        }
        proposed = tuple(
            node_id
            for node_id in partition.replicas
            if node_id == leader or (node_id in wanted and (node_id in partition.isr or node_id in able))
        )
        replica.proposed = proposed
        if partition.partition_epoch == self.partition.partition_epoch and self.active.issuperset(proposed):
            self.apply(self.decide(isr=proposed))

    # -- administrators ---------------------------------------------------------------------------------------------

    @rule(preferred=st.booleans())
    def elect(self, preferred: bool) -> None:
        if preferred or self.unclean_allowed:
            self.apply(self.decide(candidates=Candidates.PREFERRED if preferred else Candidates.UNCLEAN))

    @rule(min_insync_replicas=st.integers(1, 3))
    def configure(self, min_insync_replicas: int) -> None:
        self.min_insync_replicas = min_insync_replicas
        self.apply(self.decide())

    @rule(replicas=st.lists(brokers, min_size=1, max_size=3, unique=True).map(tuple) | st.none())
    def reassign(self, replicas: tuple[BrokerId, ...] | None) -> None:
        """Begins, replaces or cancels a reassignment, as its own decisions do."""
        image = MetadataDelta(EMPTY_IMAGE)
        image.put_topic(TopicImage("t", UUID(int=1), (self.partition,)))
        for node_id in BROKERS:
            fenced, returned = node_id not in self.active, self.returned.get(node_id, "")
            image.put_broker(BrokerImage(node_id, 1, (), fenced=fenced, returned=returned if fenced else ""))
        config = LogConfig(
            min_insync_replicas=self.min_insync_replicas, unclean_leader_election_enable=self.unclean_allowed
        )
        request = Reassignment("t", 0, replicas)
        for change in alter_reassignments(image.apply(1).image, [request], lambda _: config).changes:
            assert isinstance(change, SetPartition)
            self.apply(change.partition)

    # -- what always holds ------------------------------------------------------------------------------------------

    @precondition(lambda self: hasattr(self, "partition"))
    @invariant()
    def the_state_is_consistent(self) -> None:
        partition = self.partition
        assert (partition.leader != NO_LEADER) == bool(partition.isr)
        assert partition.leader in (NO_LEADER, *partition.isr)
        assert self.active.issuperset(partition.isr)
        assert set(partition.isr) <= set(partition.replicas)
        assert set(partition.elr) <= set(partition.replicas) - set(partition.isr)
        assert not self.active.intersection(partition.elr) or partition.isr, "an eligible replica must lead"
        minimum = min(self.min_insync_replicas, len(partition.replicas) - len(partition.adding_replicas))
        assert len(partition.isr) < minimum or not partition.elr
        assert not partition.last_known_elr or partition.leader == NO_LEADER
        assert self.decide(candidates=Candidates.CLEAN) is partition, "nothing is left to do"


TestPartitionModel = PartitionModel.TestCase
TestPartitionModel.settings = settings(max_examples=400, stateful_step_count=30, deadline=None)
