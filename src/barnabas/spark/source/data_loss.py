"""What is said, and done, when offsets that a query wanted are not there."""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from barnabas.errors import BarnabasError
from barnabas.spark.source.planning import OffsetRange
from barnabas.types import TopicPartition

__all__ = ["DEAD_LETTERS", "DataLoss", "OnLoss", "lost", "lost_for", "lost_from"]

_log = logging.getLogger("barnabas.spark")

_SHOWN_MAX: Final = 20
DEAD_LETTERS: Final = "dlq"


class DataLoss(BarnabasError):
    """Offsets that a query wanted are gone, and it is not to go on without them."""


class OnLoss(NamedTuple):
    """What to do: `fail`, `warn`, `skip`, or `dlq`, which is `warn` and a record in a topic for each range."""

    what: str
    topic: str = ""
    client: Mapping[str, str] = {}
    """Settings of the producer that writes there."""


def lost(on_loss: OnLoss, gone: Sequence[OffsetRange], why: str) -> None:
    """Tell of these offsets. Raises DataLoss unless the query is to go on."""
    which = "; ".join(map(str, gone[:_SHOWN_MAX])) + (" and more" if len(gone) > _SHOWN_MAX else "")
    lost_for(on_loss, f"{sum(each.size for each in gone)} offsets are lost ({which}): {why}")
    if on_loss.what == DEAD_LETTERS:
        _write(on_loss, [_letter(each.partition, each.start, each.end - 1, why) for each in gone])


def lost_from(on_loss: OnLoss, gone: Mapping[TopicPartition, int], what: str) -> None:
    """The same for partitions that are gone: nobody knows any more where they ended."""
    lost_for(on_loss, what)
    if on_loss.what == DEAD_LETTERS:
        _write(on_loss, [_letter(where, start, None, what) for where, start in gone.items()])


def lost_for(on_loss: OnLoss, what: str) -> None:
    """The same for what has no offsets."""
    if on_loss.what == "fail":
        raise DataLoss(
            f"{what}. To go on without them set option onDataLoss=warn; to read from elsewhere begin with a new"
            " checkpoint and startingOffsets"
        )
    _log.log(logging.INFO if on_loss.what == "skip" else logging.WARNING, "%s; they are left out", what)


def _letter(where: TopicPartition, start: int, end: int | None, why: str) -> tuple[bytes, bytes]:
    told = {"topic": where.topic, "partition": where.partition, "from": start, "to": end, "reason": why}
    return str(where).encode(), json.dumps(told).encode()


def _write(on_loss: OnLoss, letters: Sequence[tuple[bytes, bytes]]) -> None:
    """Raises what the client raises: a query does not go on before they are written."""
    from barnabas.client.producer.front import Producer  # losses are rare

    with Producer({"client.id": "barnabas-spark", **on_loss.client}) as producer:
        for delivery in [producer.send(on_loss.topic, value, key=key) for key, value in letters]:
            delivery.result()
