"""The protocol that makes a batch of several tasks visible exactly once, even if tasks and drivers die at any time. The
module neither knows Spark nor sends requests.

Each task writes in a transaction of its own and leaves it open. No other run and no other live task has its
transactional id. The driver then decides: in a transaction under the writer's own id, which fences all other drivers of
the writer, it commits the batch's number and the list of the tasks' transactions as offsets of a consumer group. From
then on the batch is committed. Any later driver can end the transactions again. Open transactions that are not on the
list are aborted.

The driver lists the transactions to abort *before* it writes the decision. A fenced driver cannot write, so the
decision proves that no successor had begun by then. Otherwise a driver that was paused could abort transactions that
its successor has decided to commit. For the same reason a successor that finds the batch decided writes the decision
again.

The open transactions that such a successor finds may already belong to the next batch: another run may have read in the
checkpoint that this batch is done, and not have taken over yet. So the decision names the runs whose transactions are
aborted, which tells their drivers that they are superseded. Before the first decision about a batch there is no such
run.

If transactions have a timeout, brokers may abort them before the decision. Before a decision the batch can be repeated,
after it no longer. So a driver checks its transactions just before it decides about a batch for the first time.

A superseded driver must not take over again: it could not know which transactions its successor has begun. A driver
that keeps its epoch is fenced. A driver whose process was restarted, and which asks for a new epoch, reads the names in
the decision: if its own name is there and not the last, it is superseded.

A driver that takes over fences the driver before it. So it first checks whether it is late: a query that was started
from an old checkpoint is refused without harm to the running one. This check may read an outdated decision, so it only
serves to refuse; all else follows from the decision that is read after taking over.

The protocol is a generator of steps: it yields a request and is sent the answer. A model in the tests plays the steps
in all orders.
"""

from collections.abc import Generator, Sequence
from typing import Any, Final, NamedTuple

from barnabas.errors import BarnabasError
from barnabas.spark.sink.decision import NO_BATCH, NO_RUN, Decision, Transaction

__all__ = [
    "Commit",
    "EndTransactions",
    "EndedTransactions",
    "Expired",
    "FilterOpenTransactions",
    "Forgotten",
    "ListOpenTransactions",
    "Lost",
    "PeekDecision",
    "ReadDecision",
    "RolledBack",
    "Step",
    "Superseded",
    "TakeOver",
    "WriteDecision",
    "commit",
    "driver_id",
    "end_all_transactions",
    "group_of",
    "refusal",
    "task_id",
]


class RolledBack(BarnabasError):
    """The writer has committed a later batch, or other rows of the batch."""


class Superseded(BarnabasError):
    """Another driver has taken over from this one."""


class Expired(Superseded):
    """A task's transaction was aborted before the decision."""


class Forgotten(BarnabasError):
    """The brokers may have deleted the decision, so whether the batch was committed is unknown."""


class Lost(BarnabasError):
    """A decided transaction cannot be committed any more."""


class PeekDecision(NamedTuple):
    """Asks for a recent decision without waiting for open transactions. The answer is a Decision, perhaps outdated, or
    None."""


class TakeOver(NamedTuple):
    """Makes this driver the writer's only one. The answer is None."""


class ReadDecision(NamedTuple):
    """Asks for the latest decision, once all transactions that may change it have ended. The answer is a Decision or
    None."""


class ListOpenTransactions(NamedTuple):
    """Asks for the open transactions of the writer's tasks, except those with `known` ids. The answer is a list."""

    known: frozenset[str]


class FilterOpenTransactions(NamedTuple):
    """Asks which of the transactions are still open. The answer is a list."""

    transactions: Sequence[Transaction]


class WriteDecision(NamedTuple):
    """Writes the decision. Fails if another driver has taken over. The answer is None. A decision of `NO_RUN` whose
    topics were deleted is not written, but fails likewise."""

    decision: Decision


class EndTransactions(NamedTuple):
    """Commits and aborts transactions, some of which may have ended in the same way before. The answer is None."""

    commits: Sequence[Transaction]
    aborts: Sequence[Transaction]


Step = (
    PeekDecision
    | TakeOver
    | ReadDecision
    | ListOpenTransactions
    | FilterOpenTransactions
    | WriteDecision
    | EndTransactions
)
Commit = Generator[Step, Any, Decision]

_DRIVER: Final = "driver"
_DRIVERS_MAX: Final = 16
_RUN_PREFIX: Final = 8
"""The length of the prefix of a run that names its driver."""
_REMEDY: Final = (
    "Restore the newest checkpoint, or begin with a new one, and starting offsets that do not repeat what was written"
)


def driver_id(writer: str) -> str:
    return f"{writer}/{_DRIVER}"


def task_id(writer: str, run: str, task: str) -> str:
    """Returns the transactional id of a task. No other live task of the run has the name `task` (`worker_names`)."""
    return f"{writer}/{run}/{task}"


def _run_of(transaction: Transaction) -> str:
    """Returns the name of the driver whose run a transaction belongs to."""
    return transaction.transactional_id.rsplit("/", 2)[1][:_RUN_PREFIX]


def group_of(writer: str) -> str:
    """Returns the consumer group whose offsets are the writer's decisions."""
    return f"spark-sink.{writer}"


def refusal(
    batch: int, run: str, latest: Decision | None, *, rows: int | None = None, plan: str = ""
) -> BarnabasError | None:
    """Returns the error if the decision forbids the run to write the batch."""
    if latest is None:
        return None
    if run[:_RUN_PREFIX] in latest.drivers[:-1]:
        return Superseded(
            f"run {run} of this writer was taken over by run {latest.drivers[-1]}...: two queries have the same"
            " checkpoint, or the same txnAppId; let one of them run"
        )
    if latest.batch > batch:
        return RolledBack(
            f"batch {batch} is to be written, but this writer has committed up to batch {latest.batch}: its checkpoint"
            f" was rolled back (restored from a copy, or two queries have the same one). {_REMEDY}"
        )
    if latest.batch == batch and plan and latest.plan and plan != latest.plan:
        return RolledBack(
            f"batch {batch} is committed, and is now to be written with other rows: its checkpoint was rolled back"
            f" by one batch (restored from a copy). {_REMEDY}"
        )
    if latest.batch == batch and rows is not None and rows != latest.rows:
        return RolledBack(
            f"batch {batch} was committed with {latest.rows} rows, now it has {rows}: its checkpoint was rolled"
            f" back by one batch, or the query gives other rows when it is repeated. {_REMEDY}"
        )
    return None


def commit(
    batch: int,
    run: str,
    written: Sequence[Transaction],
    *,
    rows: int | None = None,
    plan: str = "",
    overdue: bool = False,
    latest: Decision | None = None,
    has_taken_over: bool = False,
) -> Commit:
    """Decides to commit the transactions `written`, unless the batch was decided before, and ends all transactions.
    Returns the decision. Raises RolledBack, Superseded, Expired, Forgotten.

    A batch that is repeated has the same `plan`, if both are known, and the same number of `rows`. A batch is `overdue`
    if brokers may have deleted the decision about it. If the driver `has_taken_over` before, `latest` is its last
    decision.
    """
    if not has_taken_over:
        peeked = yield PeekDecision()
        yield from _raise(refusal(batch, run, peeked, rows=rows, plan=plan), written)
        yield TakeOver()
        latest = yield ReadDecision()
    yield from _raise(refusal(batch, run, latest, rows=rows, plan=plan), written)
    if overdue and (latest is None or latest.batch == NO_BATCH):
        yield EndTransactions((), written)
        raise Forgotten(
            f"batch {batch} was planned by an earlier run, longer ago than the brokers keep a group's offsets"
            " (offsets.retention.minutes): whether that run has committed it is not known any more. Look whether the"
            f" topic has its rows. If so, copy commits/{batch - 1} of the checkpoint to commits/{batch}; if not, delete"
            f" offsets/{batch}, and the batch is planned anew"
        )
    driver = run[:_RUN_PREFIX]
    decision = Decision(batch, run, tuple(written), (driver,), rows or 0, plan)
    if latest is not None and latest.batch == batch:
        decision = latest
    aborts = yield ListOpenTransactions(frozenset(each.transactional_id for each in decision.transactions))
    if decision is latest:
        decision = latest._replace(drivers=_drivers(latest, driver, aborts))
        aborts = [each for each in aborts if _run_of(each) in decision.drivers]
    else:
        yield from _raise(_expired(batch, written, (yield FilterOpenTransactions(written))), written)
        decided = [each for each in aborts if latest is not None and each in latest.transactions]
        if decided:
            # the batch before was not repeated: the query has no rows for it any more, or has skipped it
            yield EndTransactions(decided, ())
            aborts = [each for each in aborts if each not in decided]
    yield WriteDecision(decision)
    yield EndTransactions(decision.transactions, aborts)
    return decision


def _drivers(latest: Decision, driver: str, aborts: Sequence[Transaction]) -> tuple[str, ...]:
    """Returns the drivers that have written the decision and those whose transactions are aborted, and `driver` last.
    If they are too many, the next batch aborts the remaining transactions."""
    writers = [each for each in latest.drivers if each != driver][1 - _DRIVERS_MAX :]
    others = dict.fromkeys([*writers, *(run for run in map(_run_of, aborts) if run != driver)])
    return (*list(others)[: _DRIVERS_MAX - 1], driver)


def _raise(error: BarnabasError | None, written: Sequence[Transaction]) -> Generator[Step, Any, None]:
    """Aborts the transactions and raises the error, if there is one."""
    if error is not None:
        yield EndTransactions((), written)
        raise error


def _expired(batch: int, written: Sequence[Transaction], still_open: Sequence[Transaction]) -> Expired | None:
    ended = [each.transactional_id for each in written if each not in still_open]
    if not ended:
        return None
    return Expired(
        f"batch {batch} is not committed: {len(ended)} of {len(written)} transactions have ended before ({ended[0]}"
        " ...). Nothing is lost, start the query again. If a batch takes longer than the brokers keep a transaction"
        " open (transaction.max.timeout.ms), make it smaller, or allow more, or set"
        " transaction.two.phase.commit.enable=true on the brokers; otherwise another driver or end_query has aborted it"
    )


class EndedTransactions(NamedTuple):
    """The transactional ids that `end_all_transactions` has committed and aborted."""

    committed: tuple[str, ...]
    aborted: tuple[str, ...]


def end_all_transactions() -> Generator[Step, Any, EndedTransactions]:
    """Ends the open transactions of a writer that does not run again: commits those that it has decided to commit, and
    aborts the others. The decision then names their drivers as superseded."""
    yield TakeOver()
    latest = yield ReadDecision()
    open_transactions = yield ListOpenTransactions(frozenset())
    decided = latest.transactions if latest is not None else ()
    commits = [each for each in open_transactions if each in decided]
    aborts = [each for each in open_transactions if each not in decided]
    if latest is not None or aborts:
        decision = latest or Decision(NO_BATCH, NO_RUN, ())
        drivers = dict.fromkeys([*decision.drivers, *map(_run_of, aborts)])
        yield WriteDecision(decision._replace(drivers=(*drivers, NO_RUN)[-_DRIVERS_MAX:]))
    yield EndTransactions(commits, aborts)
    return EndedTransactions(
        tuple(each.transactional_id for each in commits), tuple(each.transactional_id for each in aborts)
    )
