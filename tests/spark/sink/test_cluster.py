"""The sink's protocol at a real broker, without Spark: drivers that stop after each step, and others that go on."""

import itertools
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import barnabas
from barnabas.errors import BarnabasError
from barnabas.spark.sink.cluster import (
    SinkCluster,
    TransactionTimeout,
    end_query,
    find_transaction_timeout,
    open_transactions,
)
from barnabas.spark.sink.decision import Transaction
from barnabas.spark.sink.two_phase import (
    Commit,
    EndTransactions,
    Expired,
    FilterOpenTransactions,
    Lost,
    RolledBack,
    Superseded,
    commit,
    end_all_transactions,
    group_of,
    task_id,
)
from barnabas.testing import Broker
from barnabas.types import TopicPartition

_numbers = itertools.count()
STEPS = ("glance", "take over", "read", "list", "still open", "decide", "end")
"""Of a batch that is decided for the first time. Whether it is open is not asked about one that is repeated."""
UNTIL_REPEATED = 5


@pytest.fixture(scope="module", params=["true", "false"])
def shared(request: pytest.FixtureRequest) -> Iterator[Broker]:
    settings = {"transaction.two.phase.commit.enable": request.param, "transaction.max.timeout.ms": "600000"}
    settings |= {"offsets.retention.minutes": "30", "auto.create.topics.enable": "false"}
    with Broker(settings=settings) as broker:
        yield broker


@pytest.fixture
def writer(shared: Broker) -> Iterator["Writer"]:
    shared.reset()
    shared.create_topic("t", partitions=2)
    writer = Writer(shared)
    yield writer
    writer.close()


class Writer:
    """A query's tasks, by one producer, and its drivers."""

    def __init__(self, broker: Broker) -> None:
        self.name = f"q{next(_numbers)}"
        self.broker = broker
        self.client = {"bootstrap.servers": broker.bootstrap_servers}
        settings = find_transaction_timeout(self.client).settings()
        self.producer = barnabas.Producer({**self.client, **settings, "transactional.id": "a task's"})
        self.clusters: list[SinkCluster] = []

    def close(self) -> None:
        self.producer.close(0)
        for cluster in self.clusters:
            cluster.close()

    def task(self, run: str, partition: int, *values: str, topics: tuple[str, ...] = ("t",)) -> Transaction:
        name = task_id(self.name, run, f"worker.{partition}")
        self.producer.init_transactions(transactional_id=name)
        self.producer.begin_transaction()
        for topic in topics:
            self.producer.send_many(topic, [value.encode() for value in values])
        released = self.producer.release_transaction()
        assert released is not None
        return Transaction(name, *released)

    def batch(self, run: str, batch: int, tasks: int) -> list[Transaction]:
        """Of ten rows, which are the same however many tasks there are."""
        rows = [f"{batch}-{number}" for number in range(10)]
        return [self.task(run, partition, *rows[partition::tasks]) for partition in range(tasks)]

    def driver(self, topic: str = "t") -> SinkCluster:
        cluster = SinkCluster(self.client, self.name, topic)
        self.clusters.append(cluster)
        return cluster

    def notes(self, batch: int) -> list[TopicPartition]:
        with barnabas.Admin(self.client) as admin:
            offsets = admin.list_group_offsets(group_of(self.name))
        return [where for where, committed in offsets.items() if committed.offset == batch]

    def delete(self, topic: str) -> None:
        """And wait for the brokers to know."""
        with barnabas.Admin(self.client) as admin:
            admin.delete_topics([topic])
            give_up_at = time.monotonic() + 60
            while any(view.name == topic for view in admin.list_topics()):
                assert time.monotonic() < give_up_at, f"topic {topic} is there yet"

    def read(self) -> list[str]:
        with barnabas.Consumer(self.client, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
            parts = [("t", 0), ("t", 1)]
            consumer.assign(parts)
            ends = consumer.end_offsets(parts)
            values = []
            while any(consumer.position(where) < end for where, end in ends.items()):
                values += [record.value.decode() for record in consumer.poll(1)]
            return sorted(values)

    def left_open(self) -> list[Transaction]:
        with barnabas.Admin(self.client) as admin:
            return open_transactions(admin, self.name)


def wanted(batches: int) -> list[str]:
    return sorted(f"{batch}-{number}" for batch in range(batches) for number in range(10))


def stop_after(cluster: SinkCluster, steps: Commit, count: int) -> None:
    """Takes some steps; the last one, ending, only for the first transaction."""
    answer: Any = None
    for _ in range(count):
        step = steps.send(answer)
        if isinstance(step, EndTransactions):
            step = step._replace(commits=step.commits[:1])
        answer = cluster.execute(step)


@pytest.mark.parametrize("stopped", range(len(STEPS) + 1))
@pytest.mark.parametrize("tasks", [2, 3])
def test_a_batch_is_committed_once_wherever_its_driver_stopped(writer: Writer, stopped: int, tasks: int) -> None:
    first = writer.driver()
    latest = first.run(commit(0, "run-1...", writer.batch("run-1...", 0, 2)))
    writer.task("run-1...", 7, "of an attempt that does not count")
    steps = commit(1, "run-1...", writer.batch("run-1...", 1, 2), latest=latest, has_taken_over=False)
    stop_after(first, steps, stopped)

    second = writer.driver()
    latest = second.run(commit(1, "run-2...", writer.batch("run-2...", 1, tasks)))
    second.run(commit(2, "run-2...", writer.batch("run-2...", 2, tasks), latest=latest, has_taken_over=True))
    assert writer.read() == wanted(3)
    assert writer.left_open() == []
    with pytest.raises(Superseded):
        first.run(commit(3, "run-1...", [], latest=latest, has_taken_over=True))


def test_older_batches_and_damage_are_told(writer: Writer) -> None:
    driver = writer.driver()
    latest = driver.run(commit(5, "run", writer.batch("run", 5, 1)))
    other = writer.driver()
    with pytest.raises(RolledBack, match=r"batch 4 is to be written, .* up to batch 5"):
        other.run(commit(4, "other", writer.batch("other", 4, 2)))
    assert writer.left_open() == []
    driver.run(
        commit(6, "run", writer.batch("run", 6, 1), latest=latest, has_taken_over=True)
    )  # it was not fenced by that
    lost = writer.batch("again", 7, 2)
    third, deciding = writer.driver(), commit(7, "again", lost)
    stop_after(third, deciding, len(STEPS) - 1)
    writer.producer.init_transactions(transactional_id=lost[0].transactional_id)  # aborts it
    with pytest.raises(Lost, match=r"again/worker\.0 .* is decided, but cannot be committed"):
        third.run(deciding)
    with barnabas.Admin(writer.client) as admin:
        admin.alter_group_offsets(group_of(writer.name), {("t", 0): 9})
    with pytest.raises(BarnabasError, match="must be the sink's alone"):
        writer.driver().run(commit(8, "more", [], latest=latest))


def test_what_has_ended_before_the_decision_is_not_decided(writer: Writer) -> None:
    """So that it can be repeated."""
    gone = [*writer.batch("run-1...", 0, 2), Transaction(task_id(writer.name, "run-1...", "worker.2"), 1, 1)]
    writer.driver().execute(EndTransactions((), gone[:1]))
    with pytest.raises(Expired, match=r"2 of 3 transactions have ended before \(.*/run-1\.\.\./worker\.0"):
        writer.driver().run(commit(0, "run-1...", gone))
    assert writer.left_open() == []
    writer.driver().run(commit(0, "run-2...", writer.batch("run-2...", 0, 3)))
    assert writer.read() == wanted(1)


def test_a_transaction_that_is_being_aborted_is_not_open(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have the epoch still that its task has left."""
    rows, driver = writer.batch("run", 0, 2), writer.driver()
    assert driver.execute(FilterOpenTransactions(rows)) == rows
    found = driver.admin.describe_transactions([each.transactional_id for each in rows])
    first = rows[0].transactional_id
    found[first] = found[first]._replace(state="PrepareAbort")
    monkeypatch.setattr(
        driver, "admin", SimpleNamespace(describe_transactions=lambda _: found, close=driver.admin.close)
    )
    assert driver.execute(FilterOpenTransactions(rows)) == rows[1:]


@pytest.mark.parametrize("decided_before", [0, 1])
def test_a_run_that_was_ended_before_it_could_commit_loses_nothing(writer: Writer, decided_before: int) -> None:
    for batch in range(decided_before):
        writer.driver().run(commit(batch, "run-0...", writer.batch("run-0...", batch, 2)))
    writer.broker.create_topic("other")
    rows = writer.batch("run-1...", decided_before, 2)
    end_query(writer.client, writer.name)
    with pytest.raises(Superseded):
        writer.driver().run(commit(decided_before, "run-1...", rows))
    writer.driver("other").run(commit(decided_before, "run-2...", writer.batch("run-2...", decided_before, 2)))
    assert writer.read() == wanted(decided_before + 1)


def test_a_run_that_was_ended_at_its_first_batch_is_told_so_before_it_takes_over(writer: Writer) -> None:
    """Whether or not its transactions were seen to be open just before."""
    writer.batch("run-1...", 0, 2)
    assert len(end_query(writer.client, writer.name).aborted) == 2
    assert end_query(writer.client, writer.name) == ((), ())
    with pytest.raises(Superseded, match=r"run run-1\.\.\. of this writer was taken over by run ended"):
        writer.driver().run(commit(0, "run-1...", []))


def test_a_batch_is_noted_where_it_was_decided_first(writer: Writer) -> None:
    """Where rows have their topic in a column, two drivers may begin at two topics. Noted at both, no decision could be
    read any more."""
    writer.broker.create_topic("other", partitions=2)

    def driver(topic: str) -> SinkCluster:
        cluster = SinkCluster(writer.client, writer.name, None)
        cluster.decision_topic = topic
        writer.clusters.append(cluster)
        return cluster

    driver("t").run(commit(0, "run-1...", writer.batch("run-1...", 0, 2)))
    driver("other").run(commit(0, "run-2...", writer.batch("run-2...", 0, 2)))
    driver("other").run(commit(1, "run-3...", writer.batch("run-3...", 1, 2)))
    assert writer.read() == wanted(2)
    assert driver("other").decision() is not None


def test_a_batch_is_noted_where_it_was_decided_though_the_query_writes_elsewhere_now(writer: Writer) -> None:
    """Option topic was changed between the two runs; the batch's rows are where they were decided to be."""
    writer.broker.create_topic("other", partitions=2)
    stop_after(writer.driver(), commit(0, "run-1...", writer.batch("run-1...", 0, 2)), len(STEPS) - 1)
    for run in ("run-2...", "run-3..."):
        writer.driver("other").run(commit(0, run, writer.batch(run, 0, 2)))
    latest = writer.driver("other").run(commit(1, "run-4...", writer.batch("run-4...", 1, 2)))
    assert writer.driver().decision() == writer.driver("other").decision() == latest
    assert {where.topic for where in writer.notes(batch=0)} == {"t"}
    assert {where.topic for where in writer.notes(batch=1)} == {"other"}
    assert writer.read() == wanted(2)
    assert writer.left_open() == []


def test_what_was_decided_is_committed_also_by_who_goes_on_without_repeating_it(writer: Writer) -> None:
    """As when the query was changed in between and has no rows for that batch any more."""
    stop_after(writer.driver(), commit(0, "run-1...", writer.batch("run-1...", 0, 3)), len(STEPS))
    writer.task("run-1...", 7, "of an attempt that does not count")
    writer.driver().run(commit(1, "run-2...", writer.batch("run-2...", 1, 2)))
    assert writer.read() == wanted(2)
    assert writer.left_open() == []


def test_a_driver_asks_for_no_longer_a_timeout_than_brokers_allow() -> None:
    with Broker(settings={"transaction.max.timeout.ms": "5000"}) as broker:
        assert end_query(broker.bootstrap_servers, "q") == ((), ())


def test_a_late_driver_takes_nothing_from_one_that_has_not_begun_to_commit(writer: Writer) -> None:
    """It repeats a batch that is done, and finds the tasks of the next one open: these it aborts, and their driver is
    told so before it decides."""
    late, rows = writer.driver(), writer.batch("run-1...", 0, 3)
    writer.driver().run(commit(0, "run-2...", writer.batch("run-2...", 0, 2)))
    following = writer.batch("run-3...", 1, 2)
    repeating = commit(0, "run-1...", rows)
    stop_after(late, repeating, UNTIL_REPEATED)
    with pytest.raises(Superseded, match=r"run-3... of this writer was taken over by run run-1"):
        writer.driver().run(commit(1, "run-3...", following))
    late.run(repeating)
    assert writer.left_open() == []
    writer.driver().run(commit(1, "run-4...", writer.batch("run-4...", 1, 3)))
    assert writer.read() == wanted(2)
    assert writer.left_open() == []


def test_a_write_goes_on_only_if_nobody_has_taken_over_since(writer: Writer) -> None:
    began = writer.driver().take_over()
    rows = writer.batch("run", 0, 2)
    committing = writer.driver()
    committing.take_over(began)
    committing.run(commit(0, "run", rows, has_taken_over=True))
    began = writer.driver().take_over()
    rows = writer.batch("run", 1, 2)
    other = writer.driver()
    other.take_over()
    with pytest.raises(Superseded, match="taken over by another driver"):
        writer.driver().take_over(began)
    other.run(commit(1, "other", [], has_taken_over=True))
    assert writer.read() == wanted(1)
    assert writer.left_open() == []


def test_what_a_query_has_left_open_is_ended(writer: Writer) -> None:
    driver = writer.driver()
    decided = writer.batch("run-1...", 0, 2)
    stop_after(driver, commit(0, "run-1...", decided), len(STEPS) - 1)
    undecided = writer.task("run-2...", 0, "never")
    assert writer.read() == []
    ended = end_query(writer.client["bootstrap.servers"], writer.name)
    assert ended == (tuple(sorted(each.transactional_id for each in decided)), (undecided.transactional_id,))
    assert writer.read() == wanted(1)
    assert end_query(writer.client, writer.name) == ((), ())


def test_what_is_open_is_ended_though_its_topic_is_gone(writer: Writer) -> None:
    left = writer.batch("run-1...", 0, 2)
    writer.delete("t")
    ended = end_query(writer.client, writer.name)
    assert ended == ((), tuple(each.transactional_id for each in left))
    assert writer.left_open() == []


def test_who_is_aborted_is_named_at_a_topic_that_is_left(writer: Writer) -> None:
    writer.broker.create_topic("other")
    aborted = writer.task("run-1...", 0, "never", topics=("t", "other"))
    writer.delete("t")
    ending = writer.driver("t")  # as for option topic
    assert ending.run(end_all_transactions()) == ((), (aborted.transactional_id,))
    assert writer.notes(batch=0) == [("other", 0)]
    with pytest.raises(Superseded, match=r"run run-1\.\.\. of this writer was taken over by run ended"):
        writer.driver("other").run(commit(0, "run-1...", []))


def test_what_is_decided_is_committed_though_its_notes_topic_is_gone(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers forget a topic's offsets with it, but not at the same moment."""
    writer.broker.create_topic("other")
    decided = writer.task("run-1...", 0, "0", topics=("other", "t"))
    stop_after(writer.driver("other"), commit(0, "run-1...", [decided]), len(STEPS) - 1)
    undecided = writer.task("run-2...", 0, "never")
    ending = writer.driver("other")
    found = ending.admin.list_group_offsets(group_of(writer.name))
    writer.delete("other")
    monkeypatch.setattr(ending.admin, "list_group_offsets", lambda *_, **__: found)
    assert ending.run(end_all_transactions()) == ((decided.transactional_id,), (undecided.transactional_id,))
    assert writer.read() == ["0"]
    assert writer.left_open() == []


def test_who_ends_a_query_without_a_topic_is_fenced_like_any_other(writer: Writer) -> None:
    left = writer.batch("run-1...", 0, 2)
    writer.delete("t")
    ending, steps = writer.driver(), end_all_transactions()
    answer: Any = None
    for _ in ("take over", "read", "list"):
        answer = ending.execute(steps.send(answer))
    deciding = steps.send(answer)
    writer.driver().take_over()
    with pytest.raises(Superseded, match="taken over by another driver"):
        ending.execute(deciding)
    assert writer.left_open() == left


def test_what_the_brokers_keep(writer: Writer, caplog: pytest.LogCaptureFixture) -> None:
    two_phase = find_transaction_timeout(writer.client).two_phase
    assert ("rows of the batch are lost" in caplog.text) is not two_phase
    assert find_transaction_timeout(writer.client) == (
        TransactionTimeout(True, 0) if two_phase else TransactionTimeout(False, 600_000)
    )
    assert find_transaction_timeout({**writer.client, "transaction.timeout.ms": "5000"}) == TransactionTimeout(
        False, 5000
    )
    assert writer.driver().offsets_retention_ms() == 30 * 60_000
