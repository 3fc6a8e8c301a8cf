"""The history of a round: what producers sent and were told, and what readers got, as plain values.

All times are seconds of one monotonic clock.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple
from zlib import crc32

from barnabas.types import TopicPartition

__all__ = [
    "Acknowledgement",
    "Commit",
    "CommitSeen",
    "CutOff",
    "EndSeen",
    "GenerationSeen",
    "History",
    "Outcome",
    "Record",
    "Run",
    "Stream",
    "Transaction",
    "decode",
    "encode",
    "record_of",
]


class Stream(NamedTuple):
    """The records of one producer in one partition, numbered from 0 in the order of sending."""

    producer: str
    topic_partition: TopicPartition


class Record(NamedTuple):
    """A record as a reader got it."""

    offset: int
    epoch: int
    """The leader epoch, -1 where the client does not tell it."""
    producer: str
    sequence: int
    digest: int = 0
    """Of key and value."""


class Acknowledgement(NamedTuple):
    """The offset of a record by its producer, and the times of sending and of the acknowledgement."""

    offset: int
    sent_s: float
    at_s: float
    broker: int = 0
    """The broker that acknowledged it, 0 where the client does not know."""


class CutOff(NamedTuple):
    """The time during which nothing passed between a broker and the others, in one direction at least, or between it
    and its disk."""

    broker: int
    from_s: float
    to_s: float


class Run(NamedTuple):
    """The records of a partition that a reader got one after another, from wherever it began."""

    reader: str
    topic_partition: TopicPartition
    read_committed: bool
    records: list[Record]
    group: str = ""


class EndSeen(NamedTuple):
    """An end offset (the high watermark) of a partition."""

    topic_partition: TopicPartition
    offset: int
    began_s: float
    at_s: float


class Commit(NamedTuple):
    """An acknowledged commit of a group."""

    group: str
    topic_partition: TopicPartition
    offset: int
    at_s: float


class CommitSeen(NamedTuple):
    """A committed offset that somebody was told who had asked at ``began_s``; -1 for none."""

    group: str
    topic_partition: TopicPartition
    offset: int
    began_s: float
    at_s: float


class GenerationSeen(NamedTuple):
    """A generation that a member has joined, after it began to join at ``began_s``."""

    group: str
    member: str
    generation_id: int
    began_s: float
    at_s: float


class Outcome(Enum):
    """The outcome of a transaction, as its producer was told."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Transaction:
    """A transaction that wrote records (stream, sequence)."""

    outcome: Outcome
    records: list[tuple[Stream, int]]


@dataclass(slots=True)
class History:
    """Everything that the clients of a round did and saw, and the partitions as they were read at the end."""

    sent: dict[Stream, int] = field(default_factory=lambda: defaultdict(int))
    """The number of records, the next sequence."""
    acknowledged: dict[Stream, dict[int, Acknowledgement]] = field(default_factory=lambda: defaultdict(dict))
    """By sequence. Those of producers without a promise are here, too."""
    without_promise: set[str] = field(default_factory=set)
    """The producers whose records may be lost, doubled and reordered (acks=1, no idempotence)."""
    transactions: dict[str, Transaction] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    ends: list[EndSeen] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    commits_seen: list[CommitSeen] = field(default_factory=list)
    generations: list[GenerationSeen] = field(default_factory=list)
    cut_off: list[CutOff] = field(default_factory=list)
    bad_disks: list[CutOff] = field(default_factory=list)
    copies: dict[TopicPartition, TopicPartition] = field(default_factory=dict)
    """The partitions that copiers write, each with the one that is copied; copies keep key and value."""
    log: dict[TopicPartition, list[Record]] = field(default_factory=dict)
    """The partitions at the end, under read_uncommitted."""
    committed_log: dict[TopicPartition, list[Record]] = field(default_factory=dict)
    """The same under read_committed."""


def encode(producer: str, sequence: int, size: int) -> bytes:
    """Returns ``producer:sequence:`` and padding up to ``size``."""
    return f"{producer}:{sequence}:".encode().ljust(size, b".")


def decode(value: bytes) -> tuple[str, int]:
    """Returns producer and sequence; ("", -1) of anything that `encode` does not make."""
    try:
        producer, sequence, padding = value.split(b":")
        if padding.strip(b"."):
            return "", -1
        return producer.decode(), int(sequence)
    except ValueError:
        return "", -1


def record_of(offset: int, epoch: int, key: bytes | None, value: bytes | None) -> Record:
    producer, sequence = decode(value or b"")
    return Record(offset, epoch, producer, sequence, crc32(value or b"", crc32(key or b"")))
