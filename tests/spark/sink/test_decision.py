"""Decisions encoded as offsets of a group, and decoded again."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.offset_messages import OffsetAndMetadata
from barnabas.errors import UsageError
from barnabas.spark.sink.decision import (
    METADATA_BYTES_MAX,
    NO_BATCH,
    NO_RUN,
    DamagedDecision,
    Decision,
    Transaction,
    decode_decision,
    encode_decision,
    topic_of_decision,
)
from barnabas.spark.sink.two_phase import task_id
from barnabas.spark.sink.worker_names import WorkerNames, WriteName
from barnabas.types import TopicPartition


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**62),
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "abcdefgh", "-_0.x", "0", "00"]) | st.integers(0, 10_000).map(str),
            st.sampled_from(["0", "00", "1", "10", "z"]),
            st.integers(0, 2**63 - 1),
            st.integers(0, 32767),
        ),
        max_size=900,
    ),
    st.lists(st.text("0123456789abcdef", min_size=8, max_size=8), max_size=16).map(tuple),
    st.sampled_from(["", "0123456789abcdef"]),
)
def test_a_decision_comes_back_from_its_notes(
    batch: int, tasks: list[tuple[str, str, int, int]], drivers: tuple[str, ...], plan: str
) -> None:
    """The transactions worker by worker."""
    run = "0e2b6f9c-7a7e-4a47-9c5e-d3f1b8a5c001"
    transactions = tuple(Transaction(task_id("q q", run, f"{w}.{n}"), pid, epoch) for w, n, pid, epoch in tasks)
    decision = Decision(batch, run, transactions, drivers, len(tasks), plan)
    notes = encode_decision(decision, f"q q/{run}/", "t", 100)
    assert all(len(note.metadata.encode()) <= METADATA_BYTES_MAX for note in notes.values())
    older = {TopicPartition("t", 99): OffsetAndMetadata(batch - 1, "x"), TopicPartition("u", 0): OffsetAndMetadata(0)}
    older = {where: note for where, note in older.items() if note.offset < batch and where not in notes}
    by_worker = sorted(zip(tasks, transactions, strict=True), key=lambda each: each[0][0])
    ordered = tuple(transaction for _, transaction in by_worker)
    assert decode_decision({**older, **notes}, "q q/") == decision._replace(transactions=ordered)


@pytest.mark.parametrize("workers", [1, 2, 16, 199, 200])
@pytest.mark.parametrize("drivers", [1, 16])
def test_a_partition_has_room_for_200_tasks(workers: int, drivers: int) -> None:
    """Of a writer and brokers that have been there for years; names and numbers are as tasks get them."""
    write, run = WriteName("q", "0e2b6f9c-7a7e-4a47-9c5e-d3f1b8a5c001", 10**7), [WorkerNames() for _ in range(workers)]
    names = [task_id("q", write.run, run[task % workers].next(write)) for task in range(200)]
    transactions = tuple(Transaction(name, 36**5 - 1 - task, 32767) for task, name in enumerate(names))
    named = tuple(f"{driver:08x}" for driver in range(drivers))
    decision = Decision(write.batch, write.run, transactions, named, 10**9, "0123456789abcdef")
    notes = encode_decision(decision, f"q/{write.run}/", "t", 1)
    assert max(len(note.metadata) for note in notes.values()) < METADATA_BYTES_MAX - 200
    found = decode_decision(notes, "q/")
    assert found is not None
    assert set(found.transactions) == set(transactions)


def test_a_note_of_the_first_form_is_read() -> None:
    """And not by what wrote it, when it is noted again: that takes the second form for damage."""
    old = "barnabas-sink-1 {}/2 run-0001-more run-0000,run-0001 12:0123 {}"
    words = ("199.0:4000:30000 7.1:9223372036854775807:0", "abcdefgh.12:1:32767")
    notes = {TopicPartition("t", part): OffsetAndMetadata(4, old.format(part, word)) for part, word in enumerate(words)}
    transactions = (
        Transaction("q/run-0001-more/199.0", 4000, 30000),
        Transaction("q/run-0001-more/7.1", 2**63 - 1, 0),
        Transaction("q/run-0001-more/abcdefgh.12", 1, 32767),
    )
    found = decode_decision(notes, "q/")
    assert found == Decision(4, "run-0001-more", transactions, ("run-0000", "run-0001"), 12, "0123")
    (again,) = encode_decision(found, "q/run-0001-more/", "t", 1).values()
    assert again.metadata.startswith("barnabas-sink-2 0/1 run-0001-more run-0000,run-0001 12:0123 199:")


@pytest.mark.parametrize("word", [".1:0001", ":0001", "a.1", "a.1:000", "a.1:00", "a.1:00?1", "a.1:000?"])
def test_a_damaged_word_is_told(word: str) -> None:
    note = OffsetAndMetadata(4, f"barnabas-sink-2 0/1 run r 1 {word}")
    with pytest.raises(DamagedDecision, match="is no transaction"):
        decode_decision({TopicPartition("t", 0): note}, "q/")


def test_a_decision_about_nothing_goes_behind_any_other() -> None:
    """Also where the first batch is noted at another topic, with the same offset."""
    nothing = encode_decision(Decision(NO_BATCH, NO_RUN, (), ("run", NO_RUN)), "q/", "t", 1)
    assert decode_decision(nothing, "q/") == Decision(NO_BATCH, NO_RUN, (), ("run", NO_RUN))
    assert topic_of_decision(nothing) == "t"
    first = Decision(0, "r", (Transaction("q/r/0.0", 1, 1),), ("r",))
    both = {**nothing, **encode_decision(first, "q/r/", "a", 1)}
    assert decode_decision(both, "q/") == first
    assert topic_of_decision(both) == "a"


def test_too_many_tasks_for_a_topic() -> None:
    decision = Decision(1, "r", tuple(Transaction(f"q/r/{n}.0", 10**12 + n, 1) for n in range(1000)))
    with pytest.raises(UsageError, match=r"1000 tasks needs 4 partitions .* topic t has 3: write with fewer tasks"):
        encode_decision(decision, "q/r/", "t", 3)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.integers(0, 3), st.tuples(st.integers(0, 2), st.text(max_size=60)), min_size=1))
def test_notes_of_others_are_refused(found: dict[int, tuple[int, str]]) -> None:
    offsets = {TopicPartition("t", number): OffsetAndMetadata(*each) for number, each in found.items()}
    with pytest.raises(DamagedDecision, match="must be the sink's alone"):
        decode_decision(offsets, "q/")


def test_a_decision_with_a_part_missing_is_refused() -> None:
    decision = Decision(1, "r", tuple(Transaction(f"q/r/{n}.0", 10**12 + n, 1) for n in range(500)))
    notes = encode_decision(decision, "q/r/", "t", 9)
    assert len(notes) > 1
    for where in notes:
        with pytest.raises(DamagedDecision, match="of batch 1 there are parts"):
            decode_decision({other: note for other, note in notes.items() if other != where}, "q/")
