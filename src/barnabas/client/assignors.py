"""The range assignor: each topic's partitions in one run per member, the first members one more."""

from collections.abc import Mapping, Sequence

from barnabas.types import TopicPartition

__all__ = ["assign_range"]


def assign_range(
    subscriptions: Mapping[str, Sequence[str]], partition_counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Member to partitions; members are taken in the order of their ids. Topics without a count get nothing.

    Seven partitions for a, b, c: a has 0 to 2, b 3 and 4, c 5 and 6.
    """
    assignment: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
    topics = sorted({topic for wanted in subscriptions.values() for topic in wanted})
    for topic in topics:
        count = partition_counts.get(topic, 0)
        members = sorted(member for member, wanted in subscriptions.items() if topic in wanted)
        share, more = divmod(count, len(members))
        start = 0
        for index, member in enumerate(members):
            end = start + share + (index < more)
            assignment[member] += [TopicPartition(topic, partition) for partition in range(start, end)]
            start = end
    return assignment
