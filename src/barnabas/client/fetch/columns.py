"""Sections of one partition as columns over one buffer."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.client.fetch.sections import Section
from barnabas.records.columns_kernel import RecordColumns

__all__ = ["Columns", "columns_of"]

LOG_APPEND_TIME: Final = 1


class Columns(NamedTuple):
    """Records, by their places in `data`; `sections` lie there too."""

    data: bytes
    columns: RecordColumns
    sections: Sequence[Section]


def columns_of(sections: Sequence[Section], *, headers: bool = False) -> Columns:
    """ValueError or IndexError if a section is broken. What lies in one buffer stays there; decompressed sections are
    joined."""
    data = sections[0].data if sections else b""
    if any(section.data is not data for section in sections):
        data, sections = _joined(sections)
    columns = RecordColumns(headers)
    for section in sections:
        columns.add_batch(
            data,
            section.position,
            section.end,
            section.record_count,
            section.base_offset,
            section.base_timestamp,
            section.append_timestamp,
            section.timestamp_type == LOG_APPEND_TIME,
            section.first_offset,
            section.last_offset,
        )
    return Columns(data, columns, sections)


def _joined(sections: Sequence[Section]) -> tuple[bytes, list[Section]]:
    data = b"".join([memoryview(section.data)[section.position : section.end] for section in sections])
    moved = []
    start = 0
    for section in sections:
        end = start + section.end - section.position
        moved.append(section._replace(data=data, position=start, end=end))
        start = end
    return data, moved
