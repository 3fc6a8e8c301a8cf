"""The kernels in one form: all compiled, or all as plain Python."""

from types import ModuleType
from typing import NamedTuple

from barnabas.records.compiled import batch_filter, bulk_rows, consumer_records, offset_map, record_columns, record_walk
from client.fetch.source_kernels import SOURCE_BULK, SOURCE_COLUMNS, SOURCE_CONSUMER
from source_forms import cleaner_sources

__all__ = ["Walks"]


class Walks(NamedTuple):
    """The modules in one form."""

    walk: ModuleType
    consumer: ModuleType
    columns: ModuleType
    bulk: ModuleType
    offsets: ModuleType
    batches: ModuleType

    @classmethod
    def of(cls, record_kernel: ModuleType) -> "Walks":
        """Returns the modules in the form of `record_kernel`."""
        if record_kernel is record_walk:
            return cls(record_walk, consumer_records, record_columns, bulk_rows, offset_map, batch_filter)
        return cls(record_kernel, SOURCE_CONSUMER, SOURCE_COLUMNS, SOURCE_BULK, *cleaner_sources())
