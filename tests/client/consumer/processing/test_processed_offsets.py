"""Commits of records that end out of order, against a model that remembers everything."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from barnabas.client.consumer.processing.processed_offsets import ProcessedOffsets, decode_done, encode_done
from barnabas.types import TopicPartition

WHERE = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
LIMIT = 12


class Model(RuleBasedStateMachine):
    """Offsets with gaps are begun in order and end in any order."""

    begun = Bundle("begun")

    def __init__(self) -> None:
        super().__init__()
        self.commits = ProcessedOffsets(LIMIT)
        self.next_offset = 0
        self.given: list[int] = []
        self.ended: set[int] = set()

    @precondition(lambda self: not self.commits.is_full)
    @rule(target=begun, gap=st.integers(0, 3))
    def begin(self, gap: int) -> int:
        offset = self.next_offset + gap
        self.commits.begin(WHERE, offset, offset // 10)
        self.given.append(offset)
        self.next_offset = offset + 1
        return offset

    @rule(offset=consumes(begun))
    def done(self, offset: int) -> None:
        before = self.commits.committable(WHERE)
        self.ended.add(offset)
        assert self.commits.done(WHERE, offset) == (self.commits.committable(WHERE) != before)

    @precondition(lambda self: self.given)
    @rule(gap=st.integers(0, 5))
    def skip(self, gap: int) -> None:
        self.next_offset += gap
        self.commits.skip_to(WHERE, self.next_offset)

    @invariant()
    def commits_only_what_is_done(self) -> None:
        open_offsets = [offset for offset in self.given if offset not in self.ended]
        if not self.given:
            assert self.commits.committable(WHERE) is None
            return
        first = open_offsets[0] if open_offsets else self.next_offset
        before = [offset for offset in self.given if offset < first]
        assert self.commits.committable(WHERE) == (first, before[-1] // 10 if before else -1)
        assert self.commits.unfinished(WHERE) == open_offsets
        behind = {offset for offset in self.ended if offset > first}
        assert self.commits.size == len(open_offsets) + len(behind) <= LIMIT
        redone = decode_done(first, self.commits.metadata(WHERE))
        assert behind <= redone, "done, and would be done again"
        assert not redone & set(open_offsets), "not done, and would be left out"


TestOrderedCommits = Model.TestCase
TestOrderedCommits.settings = settings(max_examples=80, stateful_step_count=60, deadline=None)


def test_the_offset_moves_over_finished_prefixes_only() -> None:
    commits = ProcessedOffsets()
    for offset in (10, 11, 14, 15):
        commits.begin(WHERE, offset, 7)
    assert commits.committable(WHERE) == (10, -1)
    assert not commits.done(WHERE, 14)
    assert not commits.done(WHERE, 11)
    assert commits.committable(WHERE) == (10, -1)
    assert commits.done(WHERE, 10)
    assert commits.committable(WHERE) == (15, 7)
    assert commits.done(WHERE, 15)
    assert commits.committable(WHERE) == (16, 7)
    commits.skip_to(WHERE, 20)
    assert commits.committable(WHERE) == (20, 7)


def test_partitions_that_went_do_not_count() -> None:
    commits = ProcessedOffsets(limit=3)
    commits.begin(WHERE, 1)
    commits.begin(WHERE, 2)
    commits.begin(OTHER, 5)
    assert commits.is_full
    commits.forget([WHERE])
    assert not commits.is_full
    assert commits.committable(WHERE) is None
    assert not commits.done(WHERE, 1)
    commits.begin(WHERE, 0)
    assert not commits.done(WHERE, 1), "from before it went"
    assert commits.committable(WHERE) == (0, -1)
    assert commits.metadata(OTHER) == commits.metadata(TopicPartition("t", 9)) == ""
    assert commits.unfinished(TopicPartition("t", 9)) == []


def test_the_bound_is_kept() -> None:
    commits = ProcessedOffsets(limit=1)
    commits.begin(WHERE, 0)
    with pytest.raises(AssertionError, match="more than 1"):
        commits.begin(WHERE, 1)


runs = st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 3000)), max_size=20)


@settings(deadline=None)
@given(st.integers(0, 2**62), runs)
def test_metadata_there_and_back(base: int, steps: list[tuple[int, int]]) -> None:
    at, expected, pairs = base, set(), []
    for gap, length in steps:
        pairs.append((at + gap, at + gap + length))
        expected.update(range(at + gap, at + gap + length + 1))
        at += gap + length
    assert decode_done(base, encode_done(base, pairs)) == expected


@given(st.integers(0, 10**9), runs, st.integers(0, 200))
def test_metadata_fits(base: int, steps: list[tuple[int, int]], max_bytes: int) -> None:
    at, pairs = base, []
    for gap, length in steps:
        pairs.append((at + gap, at + gap + length))
        at += gap + length
    text = encode_done(base, pairs, max_bytes)
    assert len(text) <= max(max_bytes, 0)
    everything = decode_done(base, encode_done(base, pairs, 10**6))
    assert decode_done(base, text) <= everything


@pytest.mark.parametrize(
    "metadata",
    ["", "mine", "done:", "done:!", "done:AQ==", "done:gA==", "done://///////////////w==", "done:AP////8P", "done:é"],
)
def test_metadata_of_others_says_nothing(metadata: str) -> None:
    assert decode_done(5, metadata) == set()


@given(st.text(max_size=40))
def test_no_metadata_does_harm(text: str) -> None:
    decode_done(0, text)
    decode_done(0, "done:" + text)
