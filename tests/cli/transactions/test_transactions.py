"""`barnabas transactions`, against a broker that lets hanging transactions be written, as brokers did before KIP-890.

With BARNABAS_TEST_BROKER: any Kafka with transaction.partition.verification.enable=false.
"""

from typing import Any

import pytest

from cli.transactions.rig import Ask, hang

pytest.importorskip("confluent_kafka")


# --- list and describe ----------------------------------------------------------------------------------------------


def test_an_open_transaction_and_its_end(ask: Ask, text: Ask, topic: str, name: str, begun: Any) -> None:
    (listed,) = [entry for entry in ask("list") if entry["transactional_id"] == name]
    assert listed["state"] == "Ongoing"
    described = ask("describe", name)
    assert described["partitions"] == [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 2}]
    assert (described["state"], described["producer_id"]) == ("Ongoing", listed["producer_id"])
    assert (described["coordinator"], described["timeout_ms"]) == (listed["coordinator"], 60_000)
    assert 0 <= described["duration_ms"] < 60_000
    code, shown = text("describe", name)
    assert code == 0
    assert f"transactional id {name}, state Ongoing, coordinator {listed['coordinator']}" in shown
    assert f"{topic}          0" in shown
    (producer,) = ask("describe-producers", "-t", topic, "-p", "2")
    assert producer["producer_id"] == listed["producer_id"]
    assert producer["current_transaction_start_offset"] == 0
    begun.commit_transaction(30)
    described = ask("describe", name)
    assert (described["state"], described["duration_ms"], described["partitions"]) == ("CompleteCommit", None, [])
    (producer,) = ask("describe-producers", "-t", topic, "-p", "2")
    assert producer["current_transaction_start_offset"] is None
    assert producer["coordinator_epoch"] is not None
    assert "begun" not in text("describe", name)[1]


def test_the_filters_of_the_list(ask: Ask, text: Ask, name: str, begun: Any) -> None:
    (ours,) = ask("list", "--transactional-id-pattern", f"{name[:-1]}.")
    assert ours["transactional_id"] == name
    assert ask("list", "--transactional-id-pattern", name[:-1]) == []
    assert ours in ask("list", "--state", "Ongoing", "--state", "Empty")
    assert ours not in ask("list", "--state", "Empty")
    assert ask("list", "--producer-id", str(ours["producer_id"]), "--producer-id", "123456789") == [ours]
    assert ours in ask("list", "--duration-filter", "0")
    assert ours not in ask("list", "--duration-filter", "3600000")
    begun.abort_transaction(30)
    assert ask("list", "--producer-id", str(ours["producer_id"])) == [ours | {"state": "CompleteAbort"}]
    code, shown = text("list", "--producer-id", str(ours["producer_id"]))
    assert (code, shown.split()[-4:]) == (
        0,
        [name, str(ours["coordinator"]), str(ours["producer_id"]), "CompleteAbort"],
    )


# --- bad input ------------------------------------------------------------------------------------------------------


def test_an_abort_that_fits_nothing(text: Ask, transactional: str, topic: str) -> None:
    where = ("abort", "-t", topic, "-p", "1")
    code, shown = text(*where, "--start-offset", "7")
    assert (code, shown) == (1, f"barnabas: no transaction begins at offset 7 of {topic}-1; none is open there\n")
    offset = hang(transactional, topic, 1, 900_005)
    code, shown = text(*where, "--start-offset", str(offset + 1))
    assert code == 1
    assert f"open ones begin at {offset}" in shown
    code, shown = text(*where, "--producer-id", "900005", "--epoch", "2", "--coordinator-epoch", "0")
    assert code == 1
    assert f"{topic}-1 knows producer 900005 in a newer epoch" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("describe", "no-such-id"), 1, "transactional id 'no-such-id' is not known"),
        (("describe-producers", "-t", "no-such-topic", "-p", "0"), 1, "topic 'no-such-topic' does not exist"),
        (("find-hanging", "-t", "no-such-topic"), 1, "topic 'no-such-topic' does not exist"),
        (("find-hanging", "-p", "1"), 2, "--partition needs the one --topic"),
        (("find-hanging", "--broker-id", "99"), 1, "broker 99 is not in the cluster"),
        (("list", "--state", "Nonsense"), 2, "never in state Nonsense, but in Empty, Ongoing"),
        (("list", "--transactional-id-pattern", "("), 1, "'(' is no regular expression"),
        (("abort", "-t", "t", "-p", "0"), 2, "give either --start-offset, or all of"),
        (("abort", "-t", "t", "-p", "0", "--producer-id", "1"), 2, "give either --start-offset, or all of"),
        (("abort", "-t", "t", "-p", "0", "--start-offset", "1", "--epoch", "1"), 2, "give either"),
    ],
)
def test_bad_input_is_one_line(text: Ask, arguments: tuple[str, ...], code: int, words: str) -> None:
    ended, shown = text(*arguments)
    assert words in shown
    assert (ended, shown.count("\n")) == (code, 1)


def test_a_partition_that_is_not_there(text: Ask, topic: str) -> None:
    assert f"topic '{topic}' has partitions 0 to 2, not 9" in text("find-hanging", "-t", topic, "-p", "9")[1]
