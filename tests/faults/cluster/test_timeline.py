"""Times are counted from the fault, by records that were sent after it."""

from barnabas.types import TopicPartition
from cluster.history import Acknowledgement, CutOff, History, Stream
from cluster.timeline import Failover, felt, longest_gap, summary, unserved

LED, ELSEWHERE = TopicPartition("ledger", 0), TopicPartition("ledger", 1)


def history() -> History:
    made = History()
    made.acknowledged[Stream("writer", LED)] = {
        0: Acknowledgement(0, 1.0, 1.25),
        1: Acknowledgement(1, 1.75, 2.25),  # was on its way when the fault came
        2: Acknowledgement(2, 2.5, 5.0),
        3: Acknowledgement(3, 3.0, 4.75),
    }
    made.acknowledged[Stream("writer", ELSEWHERE)] = {
        0: Acknowledgement(0, 1.0, 1.25),
        1: Acknowledgement(1, 2.25, 2.5),
    }
    made.acknowledged[Stream("careless", LED)] = {0: Acknowledgement(9, 2.1, 2.2)}
    made.without_promise.add("careless")
    return made


def test_the_first_acknowledgement_of_a_record_sent_after_the_fault_counts() -> None:
    (found,) = felt(history(), [Failover("leader killed", 1, 2.0, frozenset({LED}))])
    assert found.led == {LED: 2.75}
    assert found.others == {ELSEWHERE: 0.5}
    (line,) = summary([found])
    assert line.startswith("leader killed: 1x; acknowledged again after median 2.750 s, at most 2.750 s (led there), ")
    assert line.endswith(" median 0.500 s, at most 0.500 s (led elsewhere)")


def test_the_longest_gap_is_that_of_one_partition() -> None:
    assert longest_gap(history()) == (2.5, LED, 2.25)
    assert longest_gap(History()).topic_partition is None


def test_each_partition_has_to_be_served_while_a_broker_is_cut_off() -> None:
    made = history()
    made.acknowledged[Stream("other", ELSEWHERE)] = {0: Acknowledgement(2, 4.0, 4.25)}
    made.cut_off.append(CutOff(1, 2.0, 6.0))
    assert unserved(made, 3.0) == []
    assert unserved(made, 2.0) == [f"{LED}: nothing acknowledged for 2 s while broker 1 was cut off"]
    made.cut_off.append(CutOff(2, 4.0, 5.9))
    assert unserved(made, 3.0) == [], "nobody can tell what would have been"
    made.bad_disks.append(CutOff(3, 2.0, 9.0))
    assert len(unserved(made, 3.0)) == 2, "it goes on to be served"
