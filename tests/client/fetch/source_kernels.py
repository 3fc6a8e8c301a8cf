"""The consumer's kernels as plain Python, beside the compiled ones: what both forms do must be the same."""

from barnabas.records.compiled import bulk_rows, consumer_records, record_columns
from source_forms import RECORD_WALK, source_of

__all__ = ["SOURCE_BULK", "SOURCE_COLUMNS", "SOURCE_CONSUMER"]


SOURCE_CONSUMER = source_of(consumer_records)
SOURCE_COLUMNS = source_of(record_columns)
SOURCE_BULK = source_of(bulk_rows)
for _module in (SOURCE_CONSUMER, SOURCE_COLUMNS, SOURCE_BULK):
    for _name in ("_end_of_headers", "_long_varint", "_read_headers", "_signed", "_varint", "_varlong"):
        if hasattr(_module, _name):
            setattr(_module, _name, getattr(RECORD_WALK, _name))
