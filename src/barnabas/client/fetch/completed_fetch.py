"""The records of one partition in one Fetch response, which are decoded as they are read."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from barnabas.client.fetch.aborted_transactions import AbortedTransactions
from barnabas.client.fetch.columns import Columns, columns_of, require_pyarrow, to_arrow
from barnabas.client.fetch.record_batch import RecordBatch, cursor_of, origin_of
from barnabas.client.fetch.sections import Section, Sections, end_offset
from barnabas.errors import BarnabasError, CorruptMessage, RecordDeserializationFailed, UsageError
from barnabas.protocol.primitives import Part
from barnabas.records.batch import Buffer
from barnabas.records.compiled.consumer_records import RecordCursor, RecordOrigin
from barnabas.records.compression import DECOMPRESSED_MAX_BYTES
from barnabas.records.consumer_record import AnyRecord
from barnabas.types import NO_LEADER_EPOCH, TopicPartition

if TYPE_CHECKING:
    import pyarrow

__all__ = ["CompletedFetch"]

Deserializer = Callable[[bytes], Any]

BATCH_BYTES: Final = 512 * 1024
"""The size of one batch. With twice as much the allocator would map and unmap memory for each batch, which halves the
rate."""
ARROW_BYTES: Final = 1024 * 1024
"""The size of one Arrow batch: more would not fit into the processor's cache."""


class CompletedFetch:
    """The records of `partition` from the offset on that was requested."""

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
        """`data`: the records of the response; a Part is not copied. `first_offset`: the offset that was requested.
        `aborted`: (producer id, first offset) of aborted transactions for read_committed, None for read_uncommitted.
        `max_bytes`: the most that one batch may hold uncompressed."""
        self.partition = partition
        self.size_bytes = len(data)
        self.next_offset = first_offset
        """The offset behind the records that were returned or left out."""
        self.leader_epoch: int = NO_LEADER_EPOCH
        """The leader epoch of the batch before `next_offset`."""
        if not isinstance(data, Part):
            whole = data if type(data) is bytes else bytes(data)
            data = Part(whole, 0, len(whole))
        filtered = None if aborted is None else AbortedTransactions(aborted)
        self.end_offset = end_offset(data.data, data.start, data.end)
        """The offset behind the last whole batch; None if there is none."""
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
        """Whether the next call raises an error."""
        return self._failure is not None

    @property
    def is_ended(self) -> bool:
        """Whether all records were read, and no error is left to be raised."""
        return self._section is None and self._failure is None and not self._sections.has_more

    @property
    def bytes_left(self) -> int:
        """The size of the batches from which no record was read."""
        return self._sections.bytes_left

    def read(self, limit: int) -> list[AnyRecord]:
        """Returns at most `limit` records; an empty list at the end. Raises CorruptMessage and
        RecordDeserializationFailed when all records before the broken one were returned, and again at each further
        call."""
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
        """Returns the next records as a batch of about `size_bytes`, None at the end. Raises errors as `read` does, but
        the records before a broken one in its own batch on the wire are not returned either. Deserializers are not
        called. `headers`: whether headers are wanted for Arrow."""
        columns = self._read_columns(headers, size_bytes)
        return None if columns is None else RecordBatch(self.partition, columns)

    def read_arrow(self, *, headers: bool = False, size_bytes: int = ARROW_BYTES) -> "pyarrow.RecordBatch | None":
        """Returns the next records as an Arrow batch, as `read_batch` does. Needs pyarrow."""
        require_pyarrow()
        before = self.next_offset
        columns = self._read_columns(headers, size_bytes)
        try:
            return None if columns is None else to_arrow(self.partition, columns)
        except UsageError as error:
            self._failure, self.next_offset = error, before
            raise

    def _read_columns(self, headers: bool, size_bytes: int) -> Columns | None:
        while self._failure is None:
            sections = self._gather(size_bytes)
            if not sections:
                break
            try:
                columns = columns_of(sections, headers=headers)
            except (ValueError, IndexError):
                columns = columns_of(self._whole_ones(sections), headers=headers)
            if columns.columns.count:
                return columns
        if self._failure is not None:
            raise self._failure
        return None

    # --- sections ---------------------------------------------------------------------------------------------------

    def _open(self) -> bool:
        """Opens the next section if the one before is read to its end. Returns False if there is none."""
        while self._section is None:
            section = self._sections.next()
            if section is None or not (section.record_count or section.position < section.end):
                self.next_offset, self.leader_epoch = self._sections.next_offset, self._sections.leader_epoch
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
        """Returns sections of about that many bytes and of one type of timestamp."""
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
        """Returns the sections before the first broken one, whose error the next call raises."""
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
