"""The sink's protocol in a model of its world: all schedules of two drivers with few changes of who goes on, and many
random ones."""

import contextlib
import itertools
import random
from collections.abc import Iterator, Sequence

import pytest

from barnabas.spark.sink.decision import (
    NO_BATCH,
    NO_RUN,
    Decision,
    Transaction,
)
from barnabas.spark.sink.two_phase import (
    Commit,
    EndTransactions,
    Expired,
    FilterOpenTransactions,
    Forgotten,
    ListOpenTransactions,
    PeekDecision,
    ReadDecision,
    RolledBack,
    Superseded,
    TakeOver,
    WriteDecision,
    commit,
    end_all_transactions,
)

from .sink_model import (
    BATCHES,
    Brokers,
    Checkpoint,
    Fenced,
    Outcome,
    Protocol,
    Query,
    driven,
    driver,
    outcome_of,
    play,
    saves,
    task,
)

STEPS = 30
"""So many take a driver into the last of its three batches."""


def few_changes() -> Iterator[list[int]]:
    """One driver goes on until the other takes over, twice; before one of the changes one may die."""
    for first, second in itertools.product(range(STEPS), repeat=2):
        for dies in ((), (2,), (3,)):
            yield [*[0] * first, *dies, *[1] * second, *[0] * STEPS]
            yield [*[0] * first, *[1] * second, *dies, *[0] * STEPS]


def late_ones() -> Iterator[list[int]]:
    """A driver stands still when its first tasks are done. A second one commits the same batch, and may die and begin
    anew; then the first one goes on, and the second one, in the middle of what they do."""
    for until_done, dies, second, late, second_again in itertools.product(
        range(20, 24), ((3,), ()), range(5, 9), range(7, 12), range(5, 9)
    ):
        yield [*[0] * 8, *[1] * until_done, *dies, *[1] * second, *[0] * late, *[1] * second_again, *[0] * STEPS]


def random_schedule(rng: random.Random) -> list[int]:
    schedule: list[int] = []
    while len(schedule) < 150:
        schedule += [rng.choice((0, 1))] * rng.randrange(1, 25)
        if rng.random() < 0.15:
            schedule.append(rng.choice((2, 3)))
    return schedule


def first_that_fails(protocol: Protocol, runs_as: Query = driver) -> Sequence[int] | None:
    rng = random.Random(7)
    schedules = itertools.chain(few_changes(), late_ones(), (random_schedule(rng) for _ in range(4000)))
    for schedule in schedules:
        try:
            outcome, _ = play(schedule, protocol, runs_as)
        except (RolledBack, Fenced):
            return schedule
        if not outcome.is_exact:
            return schedule
    return None


def test_every_row_is_committed_once_whoever_stops_or_dies_when() -> None:
    failing = first_that_fails(tolerant)
    assert failing is None, (failing, play(failing, tolerant))


def tolerant(*args: object, **named: object) -> Commit:
    """A query that is told so ends, like one that is fenced."""
    try:
        return (yield from commit(*args, **named))  # type: ignore[arg-type]
    except (RolledBack, Superseded):
        raise Fenced from None


def test_schedules_reach_into_the_last_batch() -> None:
    assert STEPS < play([])[1] < 2 * STEPS
    assert play([0] * STEPS)[0].is_exact


# --- protocols with one rule less -------------------------------------------------------------------------------------


def looks_later(batch, run, written, *, latest=None, has_taken_over=False):  # type: ignore[no-untyped-def]
    """Looks for what to abort when it has decided."""
    if not has_taken_over:
        yield TakeOver()
        latest = yield ReadDecision()
    if latest is not None and latest.batch > batch:
        raise Fenced
    decision = latest if latest is not None and latest.batch == batch else Decision(batch, run, tuple(written))
    yield WriteDecision(decision)
    left = yield ListOpenTransactions(frozenset(each.transactional_id for each in decision.transactions))
    yield EndTransactions(decision.transactions, left)
    return decision


def writes_only_new_decisions(batch, run, written, *, latest=None, has_taken_over=False):  # type: ignore[no-untyped-def]
    """Does not prove that it is the driver still when it ends what a predecessor has decided."""
    if not has_taken_over:
        yield TakeOver()
        latest = yield ReadDecision()
    if latest is not None and latest.batch > batch:
        raise Fenced
    replayed = latest is not None and latest.batch == batch
    decision = latest if replayed else Decision(batch, run, tuple(written))
    left = yield ListOpenTransactions(frozenset(each.transactional_id for each in decision.transactions))
    if not replayed:
        yield WriteDecision(decision)
    yield EndTransactions(decision.transactions, left)
    return decision


def reads_before_it_takes_over(batch, run, written, *, latest=None, has_taken_over=False):  # type: ignore[no-untyped-def]
    if not has_taken_over:
        latest = yield ReadDecision()
        yield TakeOver()
    return (yield from tolerant(batch, run, written, latest=latest, has_taken_over=True))


def forgets_who_decided(batch, run, written, **_):  # type: ignore[no-untyped-def]
    """Takes over for each batch, as a driver does whose process is another for each, and does not ask whether it was
    taken over in between. Whoever aborts its tasks does so just after it has looked whether they are open."""
    steps = tolerant(batch, run, written)
    answer = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as ended:
            return ended.value
        answer = step.transactions if isinstance(step, FilterOpenTransactions) else (yield step)
        if isinstance(step, PeekDecision | ReadDecision) and answer is not None:
            answer = answer._replace(drivers=tuple(driver for driver in answer.drivers if driver != run[:8]))


def does_not_name_whom_it_aborts(batch, run, written, **more):  # type: ignore[no-untyped-def]
    """And aborts just after the other one has looked whether its tasks are open."""
    steps = tolerant(batch, run, written, **more)
    answer, drivers = None, ()
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as ended:
            return ended.value
        if isinstance(step, WriteDecision):
            named = tuple(driver for driver in step.decision.drivers if driver in (*drivers, run[:8]))
            step = WriteDecision(step.decision._replace(drivers=named))
        answer = step.transactions if isinstance(step, FilterOpenTransactions) else (yield step)
        if isinstance(step, ReadDecision) and answer is not None:
            drivers = answer.drivers


def takes_over_each_time(batch, run, written, **_):  # type: ignore[no-untyped-def]
    return (yield from tolerant(batch, run, written))


def decides_nothing(batch, run, written, **_):  # type: ignore[no-untyped-def]
    yield EndTransactions(written, ())
    return Decision(batch, run, tuple(written))


@pytest.mark.parametrize(
    "protocol",
    [
        looks_later,
        writes_only_new_decisions,
        reads_before_it_takes_over,
        decides_nothing,
        forgets_who_decided,
        does_not_name_whom_it_aborts,
    ],
)
def test_the_model_finds_what_each_rule_is_for(protocol: Protocol) -> None:
    assert first_that_fails(protocol) is not None


def test_a_driver_may_be_another_process_for_each_batch() -> None:
    assert first_that_fails(takes_over_each_time) is None


def test_batch_writes_under_one_name_are_committed_once_each() -> None:
    assert first_that_fails(tolerant, saves) is None


# --- a task that lives longer than its batch --------------------------------------------------------------------------


def with_a_late_task(at: int, attempt: int) -> Outcome | None:
    """One of the first batch's first partition, which Spark has given up, writes when the driver has taken so many
    steps. None if the driver cannot go on."""
    brokers, checkpoint = Brokers(), Checkpoint()
    query = driver(brokers, checkpoint, "first-run", BATCHES, commit)
    for _ in itertools.islice(query, at):
        pass
    for _ in task(brokers, "first-run", 0, attempt, 0, []):
        pass
    try:
        for _ in query:
            pass
    except (Fenced, Expired):
        return None
    return outcome_of(brokers, checkpoint, driver, commit)


def test_a_task_that_lives_longer_than_its_batch_disturbs_nobody_under_an_id_of_its_own() -> None:
    own = [with_a_late_task(at, attempt=3) for at in range(STEPS)]
    assert all(outcome is not None and outcome.is_exact for outcome in own)
    shared = [with_a_late_task(at, attempt=1) for at in range(STEPS)]
    assert shared.count(None) > 3, "the id must matter"


# --- a query that is ended while it runs ------------------------------------------------------------------------------


def ended_while_it_runs(protocol: Protocol, done: int, before: int, ending: int, after: int) -> Outcome:
    """A driver that begins when some batches are done stands still while `end_all_transactions` takes some steps; then
    it goes on, and `end_all_transactions` does the rest."""
    brokers, checkpoint = Brokers(), Checkpoint()
    for _ in driver(brokers, checkpoint, "first-run", done, commit):
        pass
    query, end = (
        driver(brokers, checkpoint, "other-run", BATCHES, protocol),
        driven(brokers, end_all_transactions(), -1),
    )
    for steps, count in ((query, before), (end, ending), (query, after), (end, None), (query, None)):
        with contextlib.suppress(Fenced):
            for _ in itertools.islice(steps, count):
                pass
    return outcome_of(brokers, checkpoint, driver, commit)


def does_not_ask_what_is_open(*args: object, **named: object) -> Commit:
    steps = tolerant(*args, **named)
    step = next(steps)
    while True:
        try:
            step = steps.send(step.transactions if isinstance(step, FilterOpenTransactions) else (yield step))
        except StopIteration as ended:
            return ended.value  # type: ignore[no-any-return]


@pytest.mark.parametrize("done", [0, 1])
@pytest.mark.parametrize("protocol", [tolerant, does_not_ask_what_is_open])
def test_a_query_that_is_ended_while_it_runs_decides_nothing_that_is_aborted(protocol: Protocol, done: int) -> None:
    """Whether or not something was decided before, and whether or not the abort comes after the driver has looked."""
    for before, ending, after in itertools.product(range(STEPS), range(6), (0, *range(3, 20))):
        assert ended_while_it_runs(protocol, done, before, ending, after).is_exact, (before, ending, after)


# --- single steps -----------------------------------------------------------------------------------------------------


def begun(steps: Commit) -> Commit:
    """Up to where it asks for the decision; what it found before is older."""
    assert next(steps) == PeekDecision()
    assert steps.send(None) == TakeOver()
    assert steps.send(None) == ReadDecision()
    return steps


def test_a_rolled_back_checkpoint_is_named() -> None:
    mine = Transaction("q/r/0.0", 1, 1)
    steps = begun(commit(3, "r", [mine]))
    assert steps.send(Decision(7, "other", ())) == EndTransactions((), [mine])
    with pytest.raises(RolledBack, match=r"batch 3 is to be written.*up to batch 7"):
        steps.send(None)


@pytest.mark.parametrize(
    ("latest", "error"),
    [
        (Decision(7, "other", ()), RolledBack),
        (Decision(3, "other", (), ("r", "other"), 9, "a"), Superseded),
        (Decision(3, "other", (), ("other",), 9, "b"), RolledBack),
        (Decision(3, "other", (), ("other",), 8, "a"), RolledBack),
    ],
)
def test_who_is_late_is_refused_before_it_takes_over(latest: Decision, error: type[Exception]) -> None:
    """Else it would fence the one that goes on."""
    mine = Transaction("q/r/0.0", 1, 1)
    steps = commit(3, "r", [mine], rows=9, plan="a")
    assert next(steps) == PeekDecision()
    assert steps.send(latest) == EndTransactions((), [mine])
    with pytest.raises(error):
        steps.send(None)


def test_a_repeated_batch_has_as_many_rows_as_before() -> None:
    """A checkpoint that is older by one batch plans the batch anew."""
    mine = Transaction("q/r/0.0", 1, 1)
    latest = Decision(3, "other", (), ("other",), 10)
    for rows, goes_on in ((10, True), (None, True), (11, False)):
        steps = begun(commit(3, "r", [mine], rows=rows))
        assert (steps.send(latest) == ListOpenTransactions(frozenset())) is goes_on
        if not goes_on:
            with pytest.raises(RolledBack, match="batch 3 was committed with 10 rows, now it has 11"):
                steps.send(None)


def test_a_repeated_batch_is_planned_as_before() -> None:
    mine = Transaction("q/r/0.0", 1, 1)
    for before, plan, goes_on in (("a", "a", True), ("", "a", True), ("a", "", True), ("a", "b", False)):
        steps = begun(commit(3, "r", [mine], rows=10, plan=plan))
        assert (
            steps.send(Decision(3, "other", (), ("other",), 10, before)) == ListOpenTransactions(frozenset())
        ) is goes_on
        if not goes_on:
            with pytest.raises(RolledBack, match="batch 3 is committed, and is now to be written with other rows"):
                steps.send(None)


def test_a_batch_whose_decision_may_be_gone_is_not_written_again() -> None:
    mine = Transaction("q/r/0.0", 1, 1)
    nothing = Decision(NO_BATCH, NO_RUN, (), (NO_RUN,))
    for latest, overdue, goes_on in (
        (None, True, False),
        (None, False, True),
        (Decision(2, "o", ()), True, True),
        (nothing, True, False),
        (nothing, False, True),
    ):
        steps = begun(commit(3, "r", [mine], overdue=overdue))
        assert (steps.send(latest) == ListOpenTransactions(frozenset([mine.transactional_id]))) is goes_on
        if not goes_on:
            with pytest.raises(Forgotten, match=r"copy commits/2 .* to commits/3; if not, delete offsets/3"):
                steps.send(None)


def test_whoever_is_aborted_when_a_batch_is_repeated_is_named() -> None:
    """As many as there is room for; others are left to the next batch."""
    open_ones = [Transaction(f"q/run-{number:04}-and-more/0.0", number, 1) for number in range(20)]
    steps = begun(commit(3, "r", []))
    steps.send(Decision(3, "other", (), ("other",)))
    told = steps.send(open_ones)
    assert told == WriteDecision(
        Decision(3, "other", (), ("other", *(f"run-{number:04}" for number in range(14)), "r"))
    )
    assert steps.send(None) == EndTransactions((), open_ones[:14])


def test_a_batch_whose_transactions_have_ended_is_not_decided() -> None:
    """It could be neither committed nor repeated."""
    written = [Transaction("q/run-1/0.0", 1, 1), Transaction("q/run-1/1.0", 2, 1)]
    for there in ([], written[1:], written[:1], [written[0]._replace(producer_epoch=2), written[1]]):
        steps = begun(commit(3, "run-1", written))
        steps.send(Decision(2, "run-1", ()))
        assert steps.send([]) == FilterOpenTransactions(written)
        assert steps.send(there) == EndTransactions((), written)
        with pytest.raises(Expired, match=r"batch 3 is not committed: [12] of 2 .*transaction\.max\.timeout\.ms"):
            steps.send(None)
    steps = begun(commit(3, "run-1", written))
    steps.send(Decision(2, "run-1", ()))
    assert steps.send([]) == FilterOpenTransactions(written)
    assert steps.send(written[::-1]) == WriteDecision(Decision(3, "run-1", tuple(written), ("run-1",)))


def test_whoever_is_aborted_when_a_query_is_ended_is_named() -> None:
    """Those before anybody else."""
    latest = Decision(4, "r", (), tuple(f"run-{number:04}" for number in range(16)))
    steps = end_all_transactions()
    assert next(steps) == TakeOver()
    assert steps.send(None) == ReadDecision()
    assert steps.send(latest) == ListOpenTransactions(frozenset())
    left = [Transaction("q/new-run-and-more/0.0", 1, 1), Transaction("q/new-run-and-more/1.0", 2, 1)]
    assert steps.send(left) == WriteDecision(latest._replace(drivers=(*latest.drivers[2:], "new-run-", "ended")))
    assert steps.send(None) == EndTransactions([], left)


def test_a_writer_that_does_not_come_again_is_ended() -> None:
    """What it has decided is committed, and nothing else; who was its driver finds out."""
    decided, later = Transaction("q/r/0.0", 1, 1), Transaction("q/r/1.0", 2, 5)
    latest = Decision(4, "r", (decided, later._replace(producer_epoch=3)), ("r",))
    nothing = Decision(NO_BATCH, NO_RUN, ())
    for found, noted, commits, aborts in ((latest, latest, [decided], [later]), (None, nothing, [], [decided, later])):
        steps = end_all_transactions()
        assert next(steps) == TakeOver()
        assert steps.send(None) == ReadDecision()
        assert steps.send(found) == ListOpenTransactions(frozenset())
        assert steps.send([decided, later]) == WriteDecision(noted._replace(drivers=("r", "ended")))
        assert steps.send(None) == EndTransactions(commits, aborts)
        with pytest.raises(StopIteration):
            steps.send(None)
    steps = begun(commit(5, "r", [later]))
    assert steps.send(latest._replace(drivers=("r", "ended"))) == EndTransactions((), [later])
    with pytest.raises(Superseded, match=r"taken over by run ended"):
        steps.send(None)
