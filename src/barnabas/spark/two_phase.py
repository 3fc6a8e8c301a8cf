"""How a batch of several tasks becomes visible exactly once, whoever dies when. Without a broker and without Spark.

Each task writes in a transaction of its own, under an id that no other run or attempt has, and leaves it open. The
driver then decides: in a transaction under the writer's own id, which fences every other driver of the writer, it
commits the batch's number with the list of those transactions as offsets of a group. From there on the batch is
committed; ending the transactions can be repeated by whoever comes next. What is open and not on the list is aborted.

What may be aborted is looked up *before* the decision is written. Only then does the decision, which a fenced driver
cannot write, prove that no successor had gone on by then: a driver that is paused later must never abort what its
successor has decided. A successor that finds the batch decided writes the same decision again, for the same reason.

A driver that was taken over must not take over again: it could not know what its successor has begun since. One that
keeps its epoch is fenced; one whose process is gone, and that asks for an epoch anew, finds out by the decision, which
names all drivers that have written it: if it is among them and not the last, its time is over.

A step asks for something by yielding it, and is sent the answer: the model in the tests plays all orders of it.
"""

from collections.abc import Generator, Sequence
from typing import Any, Final, NamedTuple

from barnabas.errors import BarnabasError
from barnabas.spark.decision import Decision, Transaction

__all__ = [
    "Commit",
    "Decide",
    "End",
    "Ended",
    "Forgotten",
    "ListOpen",
    "Lost",
    "ReadDecision",
    "RolledBack",
    "Step",
    "Superseded",
    "TakeOver",
    "commit",
    "driver_id",
    "end_all",
    "group_of",
    "task_id",
]


class RolledBack(BarnabasError):
    """The writer has gone further than whoever asks it to write believes."""


class Superseded(BarnabasError):
    """Another driver has taken over from this one."""


class Forgotten(BarnabasError):
    """Nobody knows any more whether a batch was committed."""


class Lost(BarnabasError):
    """A decided transaction cannot be committed any more."""


class TakeOver(NamedTuple):
    """Become the only driver of the writer. Answer: None."""


class ReadDecision(NamedTuple):
    """Answer: the latest Decision, or None; not before every transaction that may still change it has ended."""


class ListOpen(NamedTuple):
    """Answer: the writer's open transactions, as a list, but for the driver's own and these."""

    known: frozenset[str]


class Decide(NamedTuple):
    """Write it, unless another driver has taken over: that is an error. Answer: None."""

    decision: Decision


class End(NamedTuple):
    """Commit these and abort those; each may have been ended so before. Answer: None."""

    commits: Sequence[Transaction]
    aborts: Sequence[Transaction]


Step = TakeOver | ReadDecision | ListOpen | Decide | End
Commit = Generator[Step, Any, Decision]

_DRIVER: Final = "driver"
_DRIVERS_MAX: Final = 16
_NAME_MAX: Final = 8
_NOBODY: Final = "ended"
"""A driver that has no run."""


def driver_id(writer: str) -> str:
    return f"{writer}/{_DRIVER}"


def task_id(writer: str, run: str, partition: int, attempt: int) -> str:
    return f"{writer}/{run}/{partition}.{attempt}"


def group_of(writer: str) -> str:
    """Whose offsets are the decisions."""
    return f"spark-sink.{writer}"


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
    the decision. Raises RolledBack, Superseded, Forgotten.

    A batch that is repeated has the same `plan` as before, where both are known, and as many `rows`. `overdue`: it was
    planned so long ago that a decision about it may be gone. `holds`: this driver has taken over before, and `latest`
    is what it has decided since.
    """
    if not holds:
        yield TakeOver()
        latest = yield ReadDecision()
    me = run[:_NAME_MAX]
    if latest is not None and me in latest.drivers[:-1]:
        yield End((), written)
        raise Superseded(
            f"run {run} of this writer was taken over by run {latest.drivers[-1]}...: two queries have the same"
            " checkpoint, or the same txnAppId; let one of them run"
        )
    if latest is not None and latest.batch > batch:
        yield End((), written)
        raise RolledBack(
            f"batch {batch} is to be written, but this writer has committed up to batch {latest.batch}: its checkpoint"
            " was rolled back (restored from a copy, or two queries have the same one). Restore the newest checkpoint;"
            " or begin with a new one, and starting offsets that do not repeat what was written"
        )
    if latest is None and overdue:
        yield End((), written)
        raise Forgotten(
            f"batch {batch} was planned by an earlier run, longer ago than the brokers keep a group's offsets"
            " (offsets.retention.minutes): whether that run has committed it is not known any more. Look whether the"
            f" topic has its rows. If so, copy commits/{batch - 1} of the checkpoint to commits/{batch}; if not, delete"
            f" offsets/{batch}, and the batch is planned anew"
        )
    decision = Decision(batch, run, tuple(written), (me,), rows or 0, plan)
    if latest is not None and latest.batch == batch:
        if plan and latest.plan and plan != latest.plan:
            yield End((), written)
            raise RolledBack(
                f"batch {batch} is committed, and is now to be written with other rows: its checkpoint was rolled back"
                " by one batch (restored from a copy). Restore the newest checkpoint, or begin with a new one, and"
                " starting offsets that do not repeat what was written"
            )
        if rows is not None and rows != latest.rows:
            yield End((), written)
            raise RolledBack(
                f"batch {batch} was committed with {latest.rows} rows, now it has {rows}: its checkpoint was rolled"
                " back by one batch, or the query gives other rows when it is repeated. Restore the newest checkpoint,"
                " or begin with a new one, and starting offsets that do not repeat what was written"
            )
        before = tuple(driver for driver in latest.drivers if driver != me)
        decision = latest._replace(drivers=(*before, me)[-_DRIVERS_MAX:])
    known = frozenset(each.transactional_id for each in decision.transactions)
    left = yield ListOpen(known)
    yield Decide(decision)
    yield End(decision.transactions, left)
    return decision


class Ended(NamedTuple):
    """What `end_all` has done, by transactional id."""

    committed: tuple[str, ...]
    aborted: tuple[str, ...]


def end_all() -> Generator[Step, Any, Ended]:
    """Of a writer that does not come again: commit what it has decided, abort all else that it has left open."""
    yield TakeOver()
    latest = yield ReadDecision()
    left = yield ListOpen(frozenset())
    decided: tuple[Transaction, ...] = ()
    if latest is not None:
        decided = latest.transactions
        yield Decide(latest._replace(drivers=(*latest.drivers, _NOBODY)[-_DRIVERS_MAX:]))
    commits = [each for each in left if each in decided]
    aborts = [each for each in left if each not in decided]
    yield End(commits, aborts)
    return Ended(tuple(each.transactional_id for each in commits), tuple(each.transactional_id for each in aborts))
