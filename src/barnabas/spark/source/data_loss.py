"""Reports offsets that a query needs and that the log does not have, and stops the query or lets it go on."""

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
    """Offsets that a query needs are gone, and onDataLoss=fail."""


class OnLoss(NamedTuple):
    """The option onDataLoss: `fail`, `warn`, `skip`, or `dlq`, which is `warn` with a record in a topic for each
    range."""

    what: str
    topic: str = ""
    client: Mapping[str, str] = {}
    """The settings of the producer of these records."""


def lost(on_loss: OnLoss, gone: Sequence[OffsetRange], why: str) -> None:
    """Reports lost ranges. Raises DataLoss unless the query is to go on."""
    which = "; ".join(map(str, gone[:_SHOWN_MAX])) + (" and more" if len(gone) > _SHOWN_MAX else "")
    lost_for(on_loss, f"{sum(each.size for each in gone)} offsets are lost ({which}): {why}")
    if on_loss.what == DEAD_LETTERS:
        _write(on_loss, [_letter(each.partition, each.start, each.end - 1, why) for each in gone])


def lost_from(on_loss: OnLoss, gone: Mapping[TopicPartition, int], what: str) -> None:
    """Reports partitions that no longer exist, so that nobody knows where they ended."""
    lost_for(on_loss, what)
    if on_loss.what == DEAD_LETTERS:
        _write(on_loss, [_letter(partition, start, None, what) for partition, start in gone.items()])


def lost_for(on_loss: OnLoss, what: str) -> None:
    """Reports a loss without offsets."""
    if on_loss.what == "fail":
        raise DataLoss(
            f"{what}. To go on without them set option onDataLoss=warn; to read from elsewhere begin with a new"
            " checkpoint and startingOffsets"
        )
    _log.log(logging.INFO if on_loss.what == "skip" else logging.WARNING, "%s; they are left out", what)


def _letter(partition: TopicPartition, start: int, end: int | None, why: str) -> tuple[bytes, bytes]:
    told = {"topic": partition.topic, "partition": partition.partition, "from": start, "to": end, "reason": why}
    return str(partition).encode(), json.dumps(told).encode()


def _write(on_loss: OnLoss, letters: Sequence[tuple[bytes, bytes]]) -> None:
    """Writes the records and waits for them: the query goes on only then. Raises the client's errors."""
    from barnabas.client.producer.front import Producer  # losses are rare

    with Producer({"client.id": "barnabas-spark", **on_loss.client}) as producer:
        for delivery in [producer.send(on_loss.topic, value, key=key) for key, value in letters]:
            delivery.result()
