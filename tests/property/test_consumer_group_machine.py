"""Any sequence of joins, polls, absences, crashes, lost answers, errors and moves, against what must always hold.

The members are our membership and the coordinator is our broker's. Whatever happens: no partition is owned by two
members that the coordinator counts as such, and once the trouble is over every partition is owned by somebody, every
member is in the group, and every rebalance has a reason.
"""

import random
from collections.abc import Sequence
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.client.consumer.assignors import RangeAssignor, members_of
from barnabas.client.consumer.group.consumer_protocol import decode_assignment, encode_assignment
from barnabas.client.consumer.group.generation import MemberState
from barnabas.client.consumer.group.heartbeat import MembershipSettings
from barnabas.client.consumer.group.membership import Membership
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import encode
from barnabas.protocol.messages import consumer_protocol_subscription as wire
from barnabas.types import TopicPartition
from simulation.cluster import CUT, LOSE, Client, Cluster

TOPIC = "orders"
PARTITIONS = 5
ALL = {TopicPartition(TOPIC, number) for number in range(PARTITIONS)}
NAMES = ("a", "b", "c", "d")
SESSION_S, INTERVAL_S = 10.0, 30.0
MEMBERSHIP_APIS = [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT]


class Member:
    """A member and its application: subscribes to one topic, shares by range, gives up at once or step by step."""

    def __init__(self, cluster: Cluster, name: str, *, cooperative: bool) -> None:
        self.client: Client = cluster.client(name)
        self.cooperative = cooperative
        self.owned: set[TopicPartition] = set()
        instance = f"static-{name}" if name == "d" else None
        config = MembershipSettings("g", instance, SESSION_S, 3.0, INTERVAL_S)
        self.membership = Membership(self.client.network_client, config, self)
        self.client.network_client.components.append(self.membership)
        self.membership.subscribe()

    # --- the role ---------------------------------------------------------------------------------------------------

    def metadata(self, generation_id: int) -> Sequence[tuple[str, bytes]]:
        owned = sorted(partition.partition for partition in self.owned)
        message = wire.ConsumerProtocolSubscription(
            topics=[TOPIC], owned_partitions=[wire.TopicPartition(topic=TOPIC, partitions=owned)]
        )
        return [("range", b"\0\1" + encode(message, 1))]

    def owns_nothing(self) -> bool:
        return not self.owned

    def on_leader_elected(self, protocol: str, members: Sequence[Any], skip: bool, done: Any) -> None:
        if skip:
            done({}, None)
            return
        joined = members_of(members)
        owners = {partition: member.member_id for member in joined for partition in member.owned}
        shares = RangeAssignor().assign(joined, {TOPIC: PARTITIONS})
        if self.cooperative:
            shares = {
                name: [partition for partition in share if owners.get(partition, name) == name]
                for name, share in shares.items()
            }
        done({name: encode_assignment(share) for name, share in shares.items()}, None)

    # --- the application --------------------------------------------------------------------------------------------

    def poll(self) -> None:
        membership = self.membership
        membership.take_failure()
        assignment = membership.take_assignment()
        if assignment is not None:
            assigned = set(decode_assignment(assignment))
            given_up, self.owned = self.owned - assigned, assigned
            if self.cooperative and given_up:
                membership.request_rejoin("partitions are given up")
        if membership.needs_join_prepare:
            membership.begin_join_prepare()
            if membership.is_lost or not self.cooperative:
                self.owned = set()
            membership.join()


class GroupMachine(RuleBasedStateMachine):
    @initialize(
        cooperative=st.booleans(),
        delay_ms=st.sampled_from([0, 500]),
        names=st.sets(st.sampled_from(NAMES), min_size=2),
        seed=st.integers(0, 1000),
    )
    def begin(self, cooperative: bool, delay_ms: int, names: set[str], seed: int) -> None:
        self.rng = random.Random(seed)
        self.cooperative = cooperative
        self.cluster = Cluster({TOPIC: PARTITIONS}, nodes=2, initial_rebalance_delay_ms=delay_ms)
        self.members: dict[str, Member] = {}
        self.busy: set[str] = set()
        for name in sorted(names):
            self.start(name)

    # --- what members do --------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES))
    def start(self, name: str) -> None:
        if name not in self.members:
            self.members[name] = Member(self.cluster, name, cooperative=self.cooperative)
        self._live(1.0)

    @rule(name=st.sampled_from(NAMES))
    def crash(self, name: str) -> None:
        member = self.members.pop(name, None)
        self.busy.discard(name)
        if member is not None:
            member.client.crash()

    @rule(name=st.sampled_from(NAMES))
    def close(self, name: str) -> None:
        member = self.members.pop(name, None)
        self.busy.discard(name)
        if member is not None:
            member.owned = set()
            left = member.membership.unsubscribe("the consumer is closed")
            self.cluster.run(lambda: left.done, seconds=5)
            member.client.crash()

    @rule(name=st.sampled_from(NAMES))
    def be_busy(self, name: str) -> None:
        if name in self.members:
            self.busy ^= {name}

    @rule(name=st.sampled_from(NAMES))
    def rejoin(self, name: str) -> None:
        if name in self.members:
            self.members[name].membership.request_rejoin("the subscription has changed")
            self._live(0.5)

    @rule(seconds=st.sampled_from([0.5, 4.0, 12.0, 40.0]))
    def time_passes(self, seconds: float) -> None:
        self._live(seconds)

    # --- trouble ----------------------------------------------------------------------------------------------------

    @rule(
        api_key=st.sampled_from(
            [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_COMMIT]
        ),
        fault=st.sampled_from([CUT, LOSE, 7, 14, 15, 16]),
    )
    def fault(self, api_key: int, fault: Any) -> None:
        self.cluster.add_fault(api_key, fault)
        self._live(0.5)

    @rule(
        api_key=st.sampled_from(MEMBERSHIP_APIS),
        fault=st.sampled_from([22, 25, 27]),
    )
    def doubt(self, api_key: int, fault: int) -> None:
        """A coordinator that has forgotten: the member may be the only one to think so."""
        if api_key != ApiKey.HEARTBEAT or fault == 27:
            self.cluster.add_fault(api_key, fault)

    @rule(node_id=st.sampled_from([1, 2]))
    def move(self, node_id: int) -> None:
        self.cluster.move_coordinator(node_id)
        self._live(0.5)

    @precondition(lambda self: len(self.cluster.up) == 2)
    @rule(node_id=st.sampled_from([1, 2]), seconds=st.sampled_from([1.0, 15.0]))
    def outage(self, node_id: int, seconds: float) -> None:
        self.cluster.stop(node_id)
        self._live(seconds)
        self.cluster.up.add(node_id)

    # --- what must hold ---------------------------------------------------------------------------------------------

    def _live(self, seconds: float) -> None:
        """Applications that are not busy poll about twice a second, each in its own time."""
        end = self.cluster.now + seconds
        while True:
            for name in self.rng.sample(sorted(self.members), len(self.members)):
                if name not in self.busy and self.rng.random() < 0.7:
                    member = self.members[name]
                    member.client.network_client.now = self.cluster.now
                    member.membership.poll_timer.reset(self.cluster.now)
                    member.poll()
                    self.cluster.settle()
                    self.no_partition_has_two_owners()
            if self.cluster.now >= end:
                return
            self.cluster.run(seconds=min(0.5, end - self.cluster.now))

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        group = self.cluster.rig.group() if hasattr(self, "cluster") else None
        if group is None:
            return
        owners: dict[TopicPartition, str] = {}
        for name, member in self.members.items():
            if member.membership.generation.member_id not in group.members or member.membership.is_lost:
                continue  # others may have its partitions, and it cannot commit
            for partition in member.owned:
                assert partition not in owners, f"{partition} is owned by {owners[partition]} and {name}"
                owners[partition] = name

    def teardown(self) -> None:
        if not hasattr(self, "cluster"):
            return
        self.cluster.faults.clear()
        self.busy.clear()
        self._live(2 * INTERVAL_S + SESSION_S)
        if not self.members:
            return
        owned = [partition for member in self.members.values() for partition in member.owned]
        assert sorted(owned) == sorted(ALL), {name: member.owned for name, member in self.members.items()}
        for name, member in self.members.items():
            membership = member.membership
            assert membership.state is MemberState.STABLE, f"{name} is stuck: {membership.state} {membership.reason}"
            assert all(rebalance.reason for rebalance in membership.history.past)


TestGroup = GroupMachine.TestCase
TestGroup.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
