"""One partition's share of one Fetch answer, on its way to the consumer: decoded as far as it is asked for."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from barnabas.client.fetch.aborted_transactions import AbortedTransactions
from barnabas.client.fetch.columns import columns_of
from barnabas.client.fetch.record_batch import RecordBatch, cursor_of, origin_of
from barnabas.client.fetch.sections import Section, Sections, end_offset
from barnabas.errors import BarnabasError, CorruptMessage, RecordDeserializationFailed, UsageError
from barnabas.protocol.codec import Part
from barnabas.records.batch import Buffer
from barnabas.records.compression import DECOMPRESSED_MAX_BYTES
from barnabas.records.consumer_kernel import RecordCursor, RecordOrigin
from barnabas.records.consumer_record import AnyRecord
from barnabas.types import NO_LEADER_EPOCH, TopicPartition

if TYPE_CHECKING:
    import pyarrow

__all__ = ["CompletedFetch"]

Deserializer = Callable[[bytes], Any]

BATCH_BYTES: Final = 512 * 1024
"""Bytes of records that become one batch. Values that are taken out of twice as much make the allocator map and unmap
memory for each batch, which halves the rate."""
ARROW_BYTES: Final = 1024 * 1024
"""Bytes of records that become one Arrow batch: more would fall out of the processor's cache."""


class CompletedFetch:
    """Records of `partition` from the offset on that was asked for."""

    __slots__ = (
        "_cursor",
        "_failure",
        "_key_deserializer",
        "_origin",
        "_section",
        "_sections",
        "_value_deserializer",
        "end_offset",
        "leader_epoch",
        "next_offset",
        "partition",
        "size_bytes",
    )

    def __init__(
        self,
        partition: TopicPartition,
        data: Part | Buffer,
        first_offset: int,
        *,
        check_crcs: bool = True,
        aborted: Iterable[tuple[int, int]] | None = None,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        max_bytes: int = DECOMPRESSED_MAX_BYTES,
    ) -> None:
        """`data`: the records of the answer, as they came; a Part stays where it is. `first_offset`: what was
        asked for. `aborted`: (producer id, first offset) of aborted transactions for read_committed, None for
        read_uncommitted. `max_bytes`: the most that one batch may hold uncompressed."""
        self.partition = partition
        self.size_bytes = len(data)
        self.next_offset = first_offset
        """Where to go on: behind what was returned and behind what consumers never see."""
        self.leader_epoch = NO_LEADER_EPOCH
        """Of the batch before `next_offset`."""
        if not isinstance(data, Part):
            whole = data if type(data) is bytes else bytes(data)
            data = Part(whole, 0, len(whole))
        filtered = None if aborted is None else AbortedTransactions(aborted)
        self.end_offset = end_offset(data.data, data.start, data.end)
        """Behind the last whole batch; None if there is none."""
        self._sections = Sections(
            str(partition),
            data.data,
            data.start,
            data.end,
            first_offset,
            check_crcs=check_crcs,
            aborted=filtered,
            max_bytes=max_bytes,
        )
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self._origin: RecordOrigin | None = None
        self._section: Section | None = None
        self._cursor: RecordCursor | None = None
        self._failure: BarnabasError | None = None

    @property
    def has_failed(self) -> bool:
        """Whether the next call raises."""
        return self._failure is not None

    @property
    def is_ended(self) -> bool:
        """Whether nothing is left to be read or raised."""
        return self._section is None and self._failure is None and not self._sections.has_more

    @property
    def bytes_left(self) -> int:
        """Bytes of batches that were not begun."""
        return self._sections.bytes_left

    def read(self, limit: int) -> list[AnyRecord]:
        """At most `limit` records; an empty list at the end. What is wrong with a record is raised when all before it
        were returned, and again by each further call: CorruptMessage, RecordDeserializationFailed."""
        records: list[AnyRecord] = []
        if self._failure is None:
            try:
                while len(records) < limit and self._open():
                    self._read_section(records, limit - len(records))
            except CorruptMessage as error:
                self._failure = error
            if self._key_deserializer is not None or self._value_deserializer is not None:
                self._deserialize(records)
        if self._failure is not None and not records:
            raise self._failure
        return records

    def read_batch(self, *, headers: bool = False, size_bytes: int = BATCH_BYTES) -> RecordBatch | None:
        """The next records as a batch of about `size_bytes`; None at the end, errors as for `read`, but what comes
        before a broken record in its own batch on the wire is not read either. No deserializer sees them. `headers`: if
        these are wanted for Arrow."""
        while self._failure is None:
            sections = self._gather(size_bytes)
            if not sections:
                break
            try:
                columns = columns_of(sections, headers=headers)
            except (ValueError, IndexError):
                columns = columns_of(self._whole_ones(sections), headers=headers)
            if columns.columns.count:
                return RecordBatch(self.partition, columns)
        if self._failure is not None:
            raise self._failure
        return None

    def read_arrow(self, *, headers: bool = False, size_bytes: int = ARROW_BYTES) -> "pyarrow.RecordBatch | None":
        """As `read_batch`, for Arrow. Needs pyarrow."""
        from barnabas.client.fetch.arrow_records import require_pyarrow

        require_pyarrow()
        before = self.next_offset
        batch = self.read_batch(headers=headers, size_bytes=size_bytes)
        try:
            return None if batch is None else batch.to_arrow(headers=headers)
        except UsageError as error:
            self._failure, self.next_offset = error, before
            raise

    # --- sections ---------------------------------------------------------------------------------------------------

    def _open(self) -> bool:
        """Make sure that there is a section with something left; False at the end."""
        while self._section is None:
            section = self._sections.next()
            if section is None or not (section.record_count or section.position < section.end):
                self.next_offset = self._sections.next_offset
            if section is None:
                return False
            self.leader_epoch = section.leader_epoch
            if section.record_count or section.position < section.end:
                self._section = section
        return True

    def _close(self) -> None:
        self._section = self._cursor = None
        self.next_offset = self._sections.next_offset

    def _read_section(self, records: list[AnyRecord], limit: int) -> None:
        section, before, failure = self._section, len(records), None
        assert section is not None
        try:
            if self._cursor is None:
                self._cursor = cursor_of(self._origin_of(section), section)
            self._cursor.read(records, limit)
        except (ValueError, IndexError) as error:
            failure = error
        if len(records) > before:
            self.next_offset = records[-1].offset + 1
        if failure is not None:
            raise self._broken(section, failure)
        if self._cursor is not None and not self._cursor.left:
            self._close()

    def _origin_of(self, section: Section) -> RecordOrigin:
        known = self._origin
        if (
            known is None
            or known.leader_epoch != section.leader_epoch
            or known.timestamp_type != section.timestamp_type
        ):
            known = self._origin = origin_of(self.partition, section)
        return known

    def _broken(self, section: Section, error: Exception) -> CorruptMessage:
        reason = "the records end early" if isinstance(error, IndexError) else str(error)
        return CorruptMessage(
            f"{self.partition}: the batch at offset {section.base_offset} is broken at or after offset"
            f" {self.next_offset}: {reason}; a seek to an offset beyond leaves it out"
        )

    # --- batches ----------------------------------------------------------------------------------------------------

    def _gather(self, size_bytes: int) -> list[Section]:
        """Sections of about that many bytes and of one type of timestamp; the rest of one that was begun first."""
        sections: list[Section] = []
        size = 0
        try:
            while size < size_bytes and self._open():
                section = self._section
                assert section is not None
                if sections and section.timestamp_type != sections[0].timestamp_type:
                    break
                if section.first_offset < self.next_offset:
                    section = section._replace(first_offset=self.next_offset)  # some of it was read already
                sections.append(section)
                size += section.end - section.position
                self._close()
        except CorruptMessage as error:
            self._failure = error
        return sections

    def _whole_ones(self, sections: list[Section]) -> list[Section]:
        """The sections before the first that is broken, which is kept for the next call to be raised."""
        for index, section in enumerate(sections):
            try:
                columns_of([section])
            except (ValueError, IndexError) as error:
                self.next_offset = section.first_offset
                self._failure = self._broken(section, error)
                return sections[:index]
        raise AssertionError("sections are broken together, but not one by one")

    # --- deserializers ----------------------------------------------------------------------------------------------

    def _deserialize(self, records: list[AnyRecord]) -> None:
        key_of, value_of = self._key_deserializer, self._value_deserializer
        part = "key"
        done = 0
        try:
            for record in records:
                part, key = "key", record.key
                if key_of is not None and key is not None:
                    key = key_of(key)
                part = "value"
                if value_of is not None and record.value is not None:
                    record.value = value_of(record.value)
                record.key = key
                done += 1
        except Exception as error:
            self._failure = RecordDeserializationFailed(records[done], part, error)
            self._failure.__cause__ = error
            self.next_offset = records[done].offset
            del records[done:]
