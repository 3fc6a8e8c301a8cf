"""Offsets committed plainly and in transactions, in any order with markers, deletions and restarts, against a model
that keeps the log as a list and says what each offset is from it."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from coordinator.group_rig import Later, Rig

GROUPS = ("g", "h")
PARTITIONS = (0, 1, 2)
PRODUCERS = (1, 2, 3)
Key = tuple[str, int]

groups = st.sampled_from(GROUPS)
producers = st.sampled_from(PRODUCERS)
partition_sets = st.sets(st.sampled_from(PARTITIONS), min_size=1)


class GroupTransactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig()
        self.value = 0
        self.place = 0
        self.committed: dict[Key, tuple[int, int]] = {}
        """(place in the log, offset)"""
        self.pending: dict[int, dict[Key, tuple[int, int]]] = {producer: {} for producer in PRODUCERS}

    def next_offsets(self, group: str, partitions: set[int]) -> dict[Key, tuple[int, int]]:
        offsets = {}
        for partition in sorted(partitions):
            self.value += 1
            self.place += 1
            offsets[group, partition] = self.place, self.value
        return offsets

    @rule(group=groups, partitions=partition_sets)
    def commit(self, group: str, partitions: set[int]) -> None:
        offsets = self.next_offsets(group, partitions)
        self.rig.commit({("orders", p): value for (_, p), (_, value) in offsets.items()}, group=group)
        self.committed |= offsets

    @rule(group=groups, partitions=partition_sets, producer=producers)
    def commit_in_transaction(self, group: str, partitions: set[int], producer: int) -> None:
        offsets = self.next_offsets(group, partitions)
        self.rig.commit_in_transaction(
            {("orders", p): value for (_, p), (_, value) in offsets.items()}, group=group, producer=(producer, 0)
        )
        self.pending[producer] |= offsets

    @rule(producer=producers, commit=st.booleans())
    def end(self, producer: int, commit: bool) -> None:
        assert self.rig.end_transaction(commit=commit, producer=(producer, 0)).value is None
        self.place += 1
        for key, offset in self.pending[producer].items():
            if commit and offset > self.committed.get(key, (-1, -1)):
                self.committed[key] = offset
        self.pending[producer] = {}

    @rule(group=groups)
    def delete_group(self, group: str) -> None:
        later = Later()
        self.rig.groups.delete_groups([group], reply=later)
        for offsets in (self.committed, *self.pending.values()):
            for key in [key for key in offsets if key[0] == group]:
                del offsets[key]

    @rule()
    def expire(self) -> None:
        """Nothing is old; only groups without anything go."""
        self.rig.groups.expire_offsets()

    @rule()
    def restart(self) -> None:
        self.rig.restart()

    @invariant()
    def each_offset_is_what_the_log_says(self) -> None:
        if self.rig.shard() is None:
            return
        for group in GROUPS:
            keys = [(group, partition) for partition in PARTITIONS]
            plain = [self.committed.get(key, (0, -1))[1] for key in keys]
            undecided = [any(key in offsets for offsets in self.pending.values()) for key in keys]
            assert self.rig.fetch(partitions=PARTITIONS, group=group) == plain
            stable = [-2 if waits else offset for waits, offset in zip(undecided, plain, strict=True)]
            assert self.rig.fetch(partitions=PARTITIONS, group=group, require_stable=True) == stable

    @invariant()
    def groups_with_offsets_are_there(self) -> None:
        keys = {key[0] for offsets in (self.committed, *self.pending.values()) for key in offsets}
        assert all(self.rig.group(group) is not None for group in keys)


TestGroupTransactions = GroupTransactions.TestCase
TestGroupTransactions.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
