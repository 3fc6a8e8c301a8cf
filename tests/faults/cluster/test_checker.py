"""The checker finds each kind of anomaly in a history that has it, and none in one that has not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.types import TopicPartition
from cluster.checker import Kind, check
from cluster.history import (
    Acknowledgement,
    Commit,
    CommitSeen,
    CutOff,
    EndSeen,
    GenerationSeen,
    History,
    Outcome,
    Record,
    Run,
    Stream,
    Transaction,
    decode,
    encode,
    record_of,
)

LEDGER, FEED, COPY = TopicPartition("ledger", 0), TopicPartition("feed", 0), TopicPartition("copy", 0)
WRITER, FEEDER = Stream("writer", LEDGER), Stream("feeder", FEED)


def record(offset: int, sequence: int, producer: str = "writer", epoch: int = 0) -> Record:
    return record_of(offset, epoch, None, encode(producer, sequence, 20))


def history() -> History:
    """Six records of a writer, a transaction that was committed and one that was not, their copies, a group."""
    made = History()
    made.log[LEDGER] = [record(offset, offset, epoch=offset // 3) for offset in range(6)]
    made.sent[WRITER] = 7
    made.acknowledged[WRITER] = {sequence: Acknowledgement(sequence, 0.0, 1.0) for sequence in range(6)}
    made.log[FEED] = [record(offset, sequence, "feeder") for offset, sequence in ((0, 0), (1, 1), (3, 2), (5, 3))]
    made.sent[FEEDER] = 4
    made.transactions["feeder/0"] = Transaction(Outcome.COMMITTED, [(FEEDER, 0), (FEEDER, 1)])
    made.transactions["feeder/1"] = Transaction(Outcome.ABORTED, [(FEEDER, 2)])
    made.transactions["feeder/2"] = Transaction(Outcome.UNKNOWN, [(FEEDER, 3)])
    made.committed_log[FEED] = [each for each in made.log[FEED] if each.offset != 3]
    made.committed_log[LEDGER] = list(made.log[LEDGER])
    made.copies[COPY] = FEED
    made.log[COPY] = [record(offset, sequence, "feeder") for offset, sequence in ((0, 0), (2, 0), (3, 1), (5, 3))]
    made.committed_log[COPY] = made.log[COPY][1:]
    made.runs.append(Run("reader", LEDGER, False, made.log[LEDGER][1:]))
    made.runs.append(Run("committed reader", FEED, True, list(made.committed_log[FEED])))
    made.runs.append(Run("a", LEDGER, False, made.log[LEDGER][:3], "group"))
    made.runs.append(Run("b", LEDGER, False, made.log[LEDGER][2:], "group"))
    made.ends += [EndSeen(LEDGER, 3, 0.0, 1.0), EndSeen(LEDGER, 2, 0.5, 1.5), EndSeen(LEDGER, 6, 2.0, 3.0)]
    made.commits += [Commit("group", LEDGER, 2, 1.0), Commit("group", LEDGER, 5, 2.0)]
    made.commits_seen += [CommitSeen("group", LEDGER, 2, 1.5, 1.6), CommitSeen("group", LEDGER, 6, 3.0, 3.5)]
    made.generations += [GenerationSeen("group", "a", 1, 0.0, 1.0), GenerationSeen("group", "b", 1, 0.5, 1.5)]
    made.generations += [GenerationSeen("group", "a", 2, 1.0, 2.0)]
    made.cut_off.append(CutOff(1, 3.0, 4.0))
    for sequence, told in enumerate(
        [
            Acknowledgement(0, 2.9, 3.1, broker=1),  # others may have had it before the cut
            Acknowledgement(1, 3.1, 4.1, broker=1),  # or after it
            Acknowledgement(2, 3.1, 3.2, broker=2),
            Acknowledgement(3, 3.1, 3.2),
        ]
    ):
        made.acknowledged[WRITER][sequence] = told
    return made


def acknowledge_alone(made: History) -> None:
    made.acknowledged[WRITER][5] = Acknowledgement(5, 3.5, 3.6, broker=1)


def lose(made: History) -> None:
    del made.log[LEDGER][5]
    del made.committed_log[LEDGER][5]
    made.runs.clear()


def lose_committed(made: History) -> None:
    made.committed_log[FEED] = made.committed_log[FEED][2:]
    made.committed_log[COPY] = made.committed_log[COPY][2:]
    made.runs.clear()


def invent(made: History) -> None:
    made.log[LEDGER].append(record(6, 7, epoch=1))


def garble(made: History) -> None:
    made.log[LEDGER].append(record_of(6, 1, None, b"\0\0"))


def double(made: History) -> None:
    made.log[LEDGER].append(record(6, 5, epoch=1))


def reorder(made: History) -> None:
    del made.acknowledged[WRITER][5]
    made.log[LEDGER][4:] = [record(4, 5, epoch=1), record(5, 4, epoch=1)]
    del made.acknowledged[WRITER][4]
    del made.runs[0].records[3:]
    del made.runs[2:]
    made.committed_log.pop(LEDGER)


def rewrite(made: History) -> None:
    made.runs[0].records[2] = record(3, 3, "other", epoch=1)


def read_in_two_epochs(made: History) -> None:
    made.runs[0].records[0] = record(1, 1, epoch=1)


def move(made: History) -> None:
    made.acknowledged[WRITER][5] = Acknowledgement(7, 0.0, 1.0)


def turn_epochs_back(made: History) -> None:
    made.log[LEDGER] = [record(offset, offset, epoch=5 - offset) for offset in range(6)]
    made.runs.clear()
    made.committed_log.pop(LEDGER)


def take_back(made: History) -> None:
    made.runs[0].records.insert(3, record(9, 6))
    del made.runs[0].records[4:]


def skip(made: History) -> None:
    del made.runs[0].records[2]


def skip_between_members(made: History) -> None:
    del made.runs[3].records[:2]


def skip_committed(made: History) -> None:
    del made.runs[1].records[1]


def read_again(made: History) -> None:
    made.runs[0].records.append(made.log[LEDGER][4])


def lower_the_end(made: History) -> None:
    made.ends.append(EndSeen(LEDGER, 5, 3.5, 4.0))


def forget_what_was_acknowledged(made: History) -> None:
    made.commits_seen.append(CommitSeen("group", LEDGER, 2, 2.5, 2.6))


def forget_all_commits(made: History) -> None:
    made.commits_seen.append(CommitSeen("group", LEDGER, -1, 1.5, 1.6))


def forget_what_was_told(made: History) -> None:
    made.commits_seen.append(CommitSeen("group", LEDGER, 5, 3.6, 3.7))


def count_generations_anew(made: History) -> None:
    made.generations.append(GenerationSeen("group", "c", 1, 2.5, 3.0))


def show_what_was_aborted(made: History) -> None:
    made.committed_log[FEED] = list(made.log[FEED])
    made.committed_log[COPY].insert(2, record(4, 2, "feeder"))
    made.log[COPY].insert(3, record(4, 2, "feeder"))
    made.runs.clear()


def read_what_was_aborted(made: History) -> None:
    made.runs[1].records.insert(2, made.log[FEED][2])


def tear(made: History) -> None:
    del made.committed_log[FEED][0]
    del made.committed_log[COPY][0]
    del made.runs[1].records[0]


def tear_what_nobody_knows(made: History) -> None:
    made.transactions["feeder/2"].records.append((FEEDER, 4))


def copy_twice(made: History) -> None:
    made.log[COPY].append(record(7, 3, "feeder"))
    made.committed_log[COPY].append(made.log[COPY][-1])


def forget_a_copy(made: History) -> None:
    del made.committed_log[COPY][1]


PLANTED: dict[Callable[[History], None], Kind] = {
    lose: Kind.LOST,
    lose_committed: Kind.LOST,
    invent: Kind.PHANTOM,
    garble: Kind.PHANTOM,
    double: Kind.DOUBLED,
    reorder: Kind.REORDERED,
    rewrite: Kind.INCONSISTENT,
    read_in_two_epochs: Kind.INCONSISTENT,
    move: Kind.INCONSISTENT,
    turn_epochs_back: Kind.INCONSISTENT,
    skip: Kind.SKIPPED,
    skip_between_members: Kind.SKIPPED,
    skip_committed: Kind.SKIPPED,
    read_again: Kind.READER_WENT_BACK,
    lower_the_end: Kind.END_WENT_BACK,
    forget_what_was_acknowledged: Kind.COMMIT_WENT_BACK,
    forget_what_was_told: Kind.COMMIT_WENT_BACK,
    forget_all_commits: Kind.COMMIT_WENT_BACK,
    count_generations_anew: Kind.GENERATION_WENT_BACK,
    show_what_was_aborted: Kind.ABORTED_READ,
    read_what_was_aborted: Kind.ABORTED_READ,
    tear: Kind.PARTIAL,
    tear_what_nobody_knows: Kind.PARTIAL,
    copy_twice: Kind.COPY,
    forget_a_copy: Kind.COPY,
    acknowledge_alone: Kind.ALONE,
}


def test_a_correct_history_has_no_anomaly() -> None:
    assert check(history()) == []


@pytest.mark.parametrize(("plant", "kind"), PLANTED.items(), ids=[plant.__name__ for plant in PLANTED])
def test_a_planted_anomaly_is_found(plant: Callable[[History], None], kind: Kind) -> None:
    made = history()
    plant(made)
    found = {anomaly.kind for anomaly in check(made)}
    assert kind in found
    assert found <= {kind, Kind.COPY}, "nothing else is wrong with it"


def test_a_record_that_was_read_and_is_gone_is_told_with_the_end_that_went_back() -> None:
    made = history()
    take_back(made)
    assert {anomaly.kind for anomaly in check(made)} >= {Kind.VANISHED, Kind.END_WENT_BACK}


def test_every_kind_is_planted() -> None:
    assert {*PLANTED.values(), Kind.VANISHED} == set(Kind)


def test_a_producer_without_a_promise_may_lose_double_and_reorder() -> None:
    made = history()
    made.without_promise.add("writer")
    made.log[LEDGER] = [record(0, 1), record(1, 0), record(2, 0)]
    made.committed_log[LEDGER] = list(made.log[LEDGER])
    made.runs.clear()
    made.ends.clear()
    assert check(made) == []


def test_a_duplicate_without_an_offset_is_no_anomaly() -> None:
    made = history()
    made.acknowledged[WRITER][3] = Acknowledgement(-1, 0.0, 1.0)
    assert check(made) == []


def test_a_value_is_read_as_it_was_written() -> None:
    assert decode(encode("writer", 17, 40)) == ("writer", 17)
    assert decode(encode("writer", 17, 40)[:-3] + b"abc") == ("", -1)
    assert decode(b"anything") == ("", -1)
