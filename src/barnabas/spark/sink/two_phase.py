"""How a batch of several tasks becomes visible exactly once, whoever dies when. Without a broker and without Spark.

Each task writes in a transaction of its own, under an id that no other run or live task has, and leaves it open. The
driver then decides: in a transaction under the writer's own id, which fences every other driver of the writer, it
commits the batch's number with the list of those transactions as offsets of a group. From there on the batch is
committed; ending the transactions can be repeated by whoever comes next. What is open and not on the list is aborted.

What may be aborted is looked up *before* the decision is written. Only then does the decision, which a fenced driver
cannot write, prove that no successor had gone on by then: a driver that is paused later must never abort what its
successor has decided. A successor that finds the batch decided writes the same decision again, for the same reason.

What it finds open then may be the next batch already, of a run that has read in the checkpoint that this one is done
and has not taken over yet. So whoever is aborted is named among the drivers, and finds out that its time is over. When
a batch is decided for the first time, there can be no such run.

What tasks have written may be gone before it is decided, where transactions have a timeout. The batch can be repeated
then; once decided, it could neither be committed nor repeated. So a driver asks for its transactions just before it
decides about a batch for the first time.

A driver that was taken over must not take over again: it could not know what its successor has begun since. One that
keeps its epoch is fenced; one whose process is gone, and that asks for an epoch anew, finds out by the decision, which
names all drivers that have written it: if it is among them and not the last, its time is over.

Taking over fences whoever is at it. So who begins looks first whether it is late: a query that was started from an old
checkpoint is refused without harm to the one that goes on. What it finds then may be older than what is decided, so it
is good for a refusal only; all else goes by what is read after taking over.

A step asks for something by yielding it, and is sent the answer: the model in the tests plays all orders of it.
"""

from collections.abc import Generator, Sequence
from typing import Any, Final, NamedTuple

from barnabas.errors import BarnabasError
from barnabas.spark.sink.decision import NOBODY, NOTHING, Decision, Transaction

__all__ = [
    "Commit",
    "Decide",
    "End",
    "Ended",
    "Expired",
    "Forgotten",
    "Glance",
    "ListOpen",
    "Lost",
    "ReadDecision",
    "RolledBack",
    "Step",
    "StillOpen",
    "Superseded",
    "TakeOver",
    "commit",
    "driver_id",
    "end_all",
    "group_of",
    "refusal",
    "task_id",
]


class RolledBack(BarnabasError):
    """The writer has gone further than whoever asks it to write believes."""


class Superseded(BarnabasError):
    """Another driver has taken over from this one."""


class Expired(Superseded):
    """What tasks have written was aborted before it was decided."""


class Forgotten(BarnabasError):
    """Nobody knows any more whether a batch was committed."""


class Lost(BarnabasError):
    """A decided transaction cannot be committed any more."""


class Glance(NamedTuple):
    """Answer: a Decision that was the latest at some time, or None; at once."""


class TakeOver(NamedTuple):
    """Become the only driver of the writer. Answer: None."""


class ReadDecision(NamedTuple):
    """Answer: the latest Decision, or None; not before every transaction that may still change it has ended."""


class ListOpen(NamedTuple):
    """Answer: the writer's open transactions, as a list, but for the driver's own and these."""

    known: frozenset[str]


class StillOpen(NamedTuple):
    """Answer: those of these that are open yet, as their tasks have left them."""

    transactions: Sequence[Transaction]


class Decide(NamedTuple):
    """Write it, unless another driver has taken over: that is an error. Answer: None. One of `NOBODY` is not written
    where its topics are gone; that nobody has taken over is found out all the same."""

    decision: Decision


class End(NamedTuple):
    """Commit these and abort those; each may have been ended so before. Answer: None."""

    commits: Sequence[Transaction]
    aborts: Sequence[Transaction]


Step = Glance | TakeOver | ReadDecision | ListOpen | StillOpen | Decide | End
Commit = Generator[Step, Any, Decision]

_DRIVER: Final = "driver"
_DRIVERS_MAX: Final = 16
_NAME_MAX: Final = 8


def driver_id(writer: str) -> str:
    return f"{writer}/{_DRIVER}"


def task_id(writer: str, run: str, task: str) -> str:
    """`task` is what no other live task of the run has (`worker_names`)."""
    return f"{writer}/{run}/{task}"


def _run_of(transaction: Transaction) -> str:
    """As drivers are named."""
    return transaction.transactional_id.rsplit("/", 2)[1][:_NAME_MAX]


def group_of(writer: str) -> str:
    """Whose offsets are the decisions."""
    return f"spark-sink.{writer}"


def refusal(
    batch: int, run: str, latest: Decision | None, *, rows: int | None = None, plan: str = ""
) -> BarnabasError | None:
    """Why this run must not write the batch when this was decided at any time before."""
    if latest is None:
        return None
    if run[:_NAME_MAX] in latest.drivers[:-1]:
        return Superseded(
            f"run {run} of this writer was taken over by run {latest.drivers[-1]}...: two queries have the same"
            " checkpoint, or the same txnAppId; let one of them run"
        )
    if latest.batch > batch:
        return RolledBack(
            f"batch {batch} is to be written, but this writer has committed up to batch {latest.batch}: its checkpoint"
            " was rolled back (restored from a copy, or two queries have the same one). Restore the newest checkpoint;"
            " or begin with a new one, and starting offsets that do not repeat what was written"
        )
    if latest.batch == batch and plan and latest.plan and plan != latest.plan:
        return RolledBack(
            f"batch {batch} is committed, and is now to be written with other rows: its checkpoint was rolled back"
            " by one batch (restored from a copy). Restore the newest checkpoint, or begin with a new one, and"
            " starting offsets that do not repeat what was written"
        )
    if latest.batch == batch and rows is not None and rows != latest.rows:
        return RolledBack(
            f"batch {batch} was committed with {latest.rows} rows, now it has {rows}: its checkpoint was rolled"
            " back by one batch, or the query gives other rows when it is repeated. Restore the newest checkpoint,"
            " or begin with a new one, and starting offsets that do not repeat what was written"
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
    holds: bool = False,
) -> Commit:
    """Decide that the batch is what `written` has, or find out that it was decided before, and end all of it. Returns
    the decision. Raises RolledBack, Superseded, Expired, Forgotten.

    A batch that is repeated has the same `plan` as before, where both are known, and as many `rows`. `overdue`: it was
    planned so long ago that a decision about it may be gone. `holds`: this driver has taken over before, and `latest`
    is what it has decided since.
    """
    if not holds:
        before = yield Glance()
        yield from _refused(refusal(batch, run, before, rows=rows, plan=plan), written)
        yield TakeOver()
        latest = yield ReadDecision()
    yield from _refused(refusal(batch, run, latest, rows=rows, plan=plan), written)
    if overdue and (latest is None or latest.batch == NOTHING):
        yield End((), written)
        raise Forgotten(
            f"batch {batch} was planned by an earlier run, longer ago than the brokers keep a group's offsets"
            " (offsets.retention.minutes): whether that run has committed it is not known any more. Look whether the"
            f" topic has its rows. If so, copy commits/{batch - 1} of the checkpoint to commits/{batch}; if not, delete"
            f" offsets/{batch}, and the batch is planned anew"
        )
    me = run[:_NAME_MAX]
    decision = Decision(batch, run, tuple(written), (me,), rows or 0, plan)
    if latest is not None and latest.batch == batch:
        decision = latest
    known = frozenset(each.transactional_id for each in decision.transactions)
    left = yield ListOpen(known)
    if decision is latest:
        decision = latest._replace(drivers=_drivers(latest, me, left))
        left = [each for each in left if _run_of(each) in decision.drivers]
    else:
        yield from _refused(_expired(batch, written, (yield StillOpen(written))), written)
        decided = [each for each in left if latest is not None and each in latest.transactions]
        if decided:
            # nobody has repeated that batch: the query has no rows for it any more, or was told to leave it out
            yield End(decided, ())
            left = [each for each in left if each not in decided]
    yield Decide(decision)
    yield End(decision.transactions, left)
    return decision


def _drivers(latest: Decision, me: str, left: Sequence[Transaction]) -> tuple[str, ...]:
    """Who has written the decision, and those of whom something is aborted; if they are too many, that is left to the
    next batch."""
    wrote = [driver for driver in latest.drivers if driver != me][1 - _DRIVERS_MAX :]
    others = dict.fromkeys([*wrote, *(run for run in map(_run_of, left) if run != me)])
    return (*list(others)[: _DRIVERS_MAX - 1], me)


def _refused(late: BarnabasError | None, written: Sequence[Transaction]) -> Generator[Step, Any, None]:
    if late is not None:
        yield End((), written)
        raise late


def _expired(batch: int, written: Sequence[Transaction], there: Sequence[Transaction]) -> Expired | None:
    gone = [each.transactional_id for each in written if each not in there]
    if not gone:
        return None
    return Expired(
        f"batch {batch} is not committed: {len(gone)} of {len(written)} transactions have ended before ({gone[0]} ...)."
        " Nothing is lost, start the query again. Where a batch takes longer than the brokers keep a transaction open"
        " (transaction.max.timeout.ms), make it smaller, or allow more, or set transaction.two.phase.commit.enable=true"
        " on the brokers; else another driver or end_query has aborted it"
    )


class Ended(NamedTuple):
    """What `end_all` has done, by transactional id."""

    committed: tuple[str, ...]
    aborted: tuple[str, ...]


def end_all() -> Generator[Step, Any, Ended]:
    """Of a writer that does not come again: commit what it has decided, abort all else that it has left open. Whoever
    is aborted is named, as above, if need be in a decision about nothing."""
    yield TakeOver()
    latest = yield ReadDecision()
    left = yield ListOpen(frozenset())
    decided = latest.transactions if latest is not None else ()
    commits = [each for each in left if each in decided]
    aborts = [each for each in left if each not in decided]
    if latest is not None or aborts:
        noted = latest or Decision(NOTHING, NOBODY, ())
        named = dict.fromkeys([*noted.drivers, *map(_run_of, aborts)])
        yield Decide(noted._replace(drivers=(*named, NOBODY)[-_DRIVERS_MAX:]))
    yield End(commits, aborts)
    return Ended(tuple(each.transactional_id for each in commits), tuple(each.transactional_id for each in aborts))
