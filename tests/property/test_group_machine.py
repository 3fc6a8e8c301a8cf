"""Any sequence of joins, leaves, commits, lost clients, restarts and full disks, against what must always hold.

The clients are honest: they do what Kafka's consumer does with each answer, the leader gives every partition to one
member. Whatever happens: no two members own a partition in one generation, generations only grow, every request is
answered once, and reading the log anew gives the durable state that the coordinator has.
"""

from typing import Any, ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas import errors
from barnabas.coordinator.group.classic_group import ClassicGroupState
from barnabas.coordinator.group.group_coordinator_shard import GroupCoordinatorShard
from coordinator.group_rig import SUBSCRIPTION, Later, Rig, failing

PARTITIONS = range(6)
CLIENTS = ("a", "b", "c", "d")
SESSION_S = 10
REBALANCE_S = 15

MEMBER_ID_REQUIRED = errors.MemberIdRequired.code
START_OVER = {errors.UnknownMemberId.code}
REJOIN = {errors.RebalanceInProgress.code, errors.IllegalGeneration.code}


class Client:
    """A consumer: its member id, its generation, what it owns, and the request it waits for."""

    def __init__(self, name: str, instance: str | None) -> None:
        self.name = name
        self.instance = instance
        self.reset()
        self.extra = b""

    def reset(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.owned: frozenset[int] = frozenset()
        self.phase = "outside"
        self.waiting: Later | None = None
        self.joined: Any = None


class GroupMachine(RuleBasedStateMachine):
    delays: ClassVar[dict[str, int]] = {"initial_rebalance_delay_ms": 500}

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(**self.delays)
        self.clients = {name: Client(name, f"static-{name}" if name in ("c", "d") else None) for name in CLIENTS}
        self.issued: list[Later] = []
        self.committed: dict[int, int] = {}
        self.owners: dict[int, dict[str, frozenset[int]]] = {}
        """generation -> member id -> partitions"""
        self.last_generation = 0
        self.deleted = 0

    def issue(self, later: Later) -> Later:
        self.issued.append(later)
        return later

    # --- what clients do ----------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(CLIENTS))
    def join(self, name: str) -> None:
        client = self.clients[name]
        if client.waiting is not None:
            return
        self._send_join(client)

    def _send_join(self, client: Client) -> None:
        client.waiting = self.issue(
            self.rig.join(
                client.member_id,
                client=client.name,
                instance=client.instance,
                session_ms=SESSION_S * 1000,
                rebalance_ms=REBALANCE_S * 1000,
                protocols={"range": SUBSCRIPTION + client.extra, "sticky": SUBSCRIPTION},
            )
        )
        client.phase = "joining"
        self.settle(client)

    @rule(names=st.permutations(CLIENTS), rounds=st.integers(1, 6))
    def everyone_polls(self, names: list[str], rounds: int) -> None:
        """A while in which all consumers that are up do what consumers do."""
        for _ in range(rounds):
            for name in names:
                self.poll(name)
            self.rig.advance(0.6)
            self.answers_are_taken()
            self.one_owner_for_each_partition()

    @rule(name=st.sampled_from(CLIENTS))
    def poll(self, name: str) -> None:
        """A consumer's next step: take the answer, send what follows from it."""
        client = self.clients[name]
        if client.phase == "outside" and client.member_id:
            self.join(name)
        elif client.phase == "joined":
            self._send_sync(client)
        elif client.phase == "stable":
            self._heartbeat(client)

    def _assignments(self, client: Client) -> dict[str, bytes]:
        """The assignments of a leader by member; nothing for followers."""
        joined = client.joined
        if joined.leader != joined.member_id:
            return {}
        names = sorted(member.member_id for member in joined.members)
        return {
            member_id: bytes(p for p in PARTITIONS if p % len(names) == index) for index, member_id in enumerate(names)
        }

    def _send_sync(self, client: Client) -> None:
        client.waiting = self.issue(
            self.rig.sync(
                client.member_id,
                client.generation,
                self._assignments(client),
                instance=client.instance,
                protocol_name=client.joined.protocol_name,
            )
        )
        client.phase = "syncing"
        self.settle(client)

    def _heartbeat(self, client: Client) -> None:
        code = self.rig.heartbeat(client.member_id, client.generation, instance=client.instance)
        if code in REJOIN:
            client.phase = "outside"
            client.owned = frozenset()
        elif code:
            client.reset()

    @rule(name=st.sampled_from(CLIENTS), metadata=st.sampled_from([b"", b"\0", b"\0\0"]))
    def change_metadata(self, name: str, metadata: bytes) -> None:
        self.clients[name].extra = metadata

    @rule(name=st.sampled_from(CLIENTS))
    def leave(self, name: str) -> None:
        client = self.clients[name]
        if client.member_id:
            self.rig.leave(client.member_id)
        client.reset()

    @rule(name=st.sampled_from(CLIENTS))
    def sync_comes_twice_or_late(self, name: str) -> None:
        """A request that the network kept: nobody reads its answer, and an old generation's must be refused."""
        client = self.clients[name]
        if client.joined is None:
            return
        generation = client.joined.generation_id
        current = self.rig.group() is not None and self.rig.generation == generation
        later = self.issue(
            self.rig.sync(
                client.joined.member_id,
                generation,
                self._assignments(client),
                instance=client.instance,
                protocol_name=client.joined.protocol_name,
            )
        )
        assert current or later.error != 0

    @rule(name=st.sampled_from(CLIENTS))
    def join_comes_twice(self, name: str) -> None:
        client = self.clients[name]
        if client.phase == "joining" and client.member_id:
            self.issue(
                self.rig.join(
                    client.member_id,
                    client=client.name,
                    instance=client.instance,
                    session_ms=SESSION_S * 1000,
                    rebalance_ms=REBALANCE_S * 1000,
                    protocols={"range": SUBSCRIPTION + client.extra, "sticky": SUBSCRIPTION},
                )
            )

    @rule(name=st.sampled_from(CLIENTS))
    def crash(self, name: str) -> None:
        """The process is gone and comes back knowing nothing; its parked request is still parked."""
        self.clients[name].reset()

    @rule(name=st.sampled_from(CLIENTS), offset=st.integers(0, 100))
    def commit(self, name: str, offset: int) -> None:
        client = self.clients[name]
        if client.phase != "stable" or not client.owned:
            return
        partition = min(client.owned)
        code = self.rig.commit_code(
            {("orders", partition): offset},
            member_id=client.member_id,
            generation=client.generation,
            instance=client.instance,
        )
        if code == 0:
            self.committed[partition] = offset

    # --- what happens to them -----------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.1, 0.6, 3, 9, 11, 16, 40]))
    def time_passes(self, seconds: float) -> None:
        self.rig.advance(seconds)

    @rule()
    def broker_restarts(self) -> None:
        self.rig.restart()

    @rule(names=st.permutations(CLIENTS), seconds=st.sampled_from([0, 0.6, 11, 40]))
    def disk_is_full_for_a_while(self, names: list[str], seconds: float) -> None:
        self.rig.log.fail = failing()
        for name in names[:2]:
            self.poll(name)
        self.rig.advance(seconds)
        self.rig.log.fail = None

    @rule()
    def group_is_deleted(self) -> None:
        later = Later()
        self.rig.groups.delete_groups(["g"], reply=later)
        if later.value[0].error_code == 0:
            self.committed.clear()
            self.owners.clear()
            self.last_generation = 0

    # --- the answers --------------------------------------------------------------------------------------------------

    def settle(self, client: Client) -> None:
        later = client.waiting
        if later is None or not later.done:
            return
        client.waiting = None
        answer = later.value
        code = answer.error_code
        if client.phase == "joining":
            if code == MEMBER_ID_REQUIRED:
                client.member_id = answer.member_id
                self._send_join(client)
            elif code == 0:
                client.member_id, client.generation = answer.member_id, answer.generation_id
                client.joined = answer
                client.phase = "joined"
            else:
                client.reset()
        elif code == 0:
            client.owned = frozenset(answer.assignment)
            client.phase = "stable"
            # Members that this group restored from an older record own what that record says: the same generation.
            self.owners.setdefault(client.generation, {})[client.member_id] = client.owned
        elif code in REJOIN:
            client.phase = "outside"
        else:
            client.reset()

    # --- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def answers_are_taken(self) -> None:
        for client in self.clients.values():
            self.settle(client)

    @invariant()
    def one_owner_for_each_partition(self) -> None:
        group = self.rig.group()
        if group is None or group.state is not ClassicGroupState.STABLE:
            return
        seen: set[int] = set()
        for member in group.members.values():
            owned = set(member.assignment)
            assert not owned & seen, group.members
            seen |= owned

    @invariant()
    def generations_grow(self) -> None:
        group = self.rig.group()
        if group is None:
            return
        stored = self.rig.shard().stored.get("g")
        durable = stored.generation if stored is not None else 0
        assert durable >= self.last_generation
        assert group.generation_id >= durable
        self.last_generation = durable

    @invariant()
    def requests_in_the_group_are_the_ones_that_wait(self) -> None:
        group = self.rig.group()
        parked = 0
        if group is not None:
            parked = sum((m.awaiting_join is not None) + (m.awaiting_sync is not None) for m in group.members.values())
            awaiting = sum(m.awaiting_join is not None for m in group.members.values())
            assert group.awaiting_join_count == awaiting
            assert (group.state is ClassicGroupState.EMPTY) == (not group.members) or group.state not in (
                ClassicGroupState.STABLE,
                ClassicGroupState.EMPTY,
            )
            if group.members:
                assert group.leader_id in group.members
        assert sum(not later.done for later in self.issued) == parked
        self.issued = [later for later in self.issued if not later.done]

    @invariant()
    def the_log_says_what_the_memory_says(self) -> None:
        shard = self.rig.shard()
        if shard is None:
            return
        copy = Rig()
        copy.log.batches, copy.log.ends = self.rig.log.batches, self.rig.log.ends
        copy.log.marks = self.rig.log.ends
        copy.restart()
        again: GroupCoordinatorShard | None = copy.shard()
        assert (again.stored if again else {}) == shard.stored
        assert (again.offsets.snapshot() if again else {}) == shard.offsets.snapshot()

    @invariant()
    def acknowledged_commits_are_there(self) -> None:
        if self.rig.shard() is not None:
            found = {partition: offset for (_, partition), offset in self.rig.fetch_everything().items()}
            assert found == self.committed

    @invariant()
    def no_more_timers_than_members_need(self) -> None:
        group = self.rig.group()
        members = 0 if group is None else len(group.members) + len(group.pending_members)
        assert self.rig.scheduler.pending() <= members + 2

    def teardown(self) -> None:
        """The group is empty or gone in the end, after all clients have stopped."""
        self.rig.log.fail = None
        for _ in range(30):
            self.rig.advance(REBALANCE_S + SESSION_S)
        group = self.rig.group()
        assert group is None or (group.state is ClassicGroupState.EMPTY and not group.pending_members)
        self.requests_in_the_group_are_the_ones_that_wait()
        self.rig.groups.shutdown()
        assert self.rig.scheduler.pending() == 0


class SettlingGroupMachine(GroupMachine):
    """Without an initial delay."""

    delays: ClassVar[dict[str, int]] = {"settle_ms": 20}


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
TestSettlingGroupMachine = SettlingGroupMachine.TestCase
TestSettlingGroupMachine.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
