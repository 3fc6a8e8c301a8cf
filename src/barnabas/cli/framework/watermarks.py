"""Where partitions begin and end."""

from collections.abc import Iterable

from barnabas import Admin
from barnabas.types import TopicPartition

__all__ = ["watermarks"]


def watermarks(
    admin: Admin, partitions: Iterable[TopicPartition], *, isolation: str = "read_uncommitted"
) -> dict[TopicPartition, tuple[int, int]]:
    """(earliest, end) offsets; the end is exclusive."""
    wanted = list(partitions)
    low = admin.list_offsets(dict.fromkeys(wanted, "earliest"))
    high = admin.list_offsets(dict.fromkeys(wanted, "latest"), isolation=isolation)
    return {tp: (low[tp].offset, high[tp].offset) for tp in wanted}
