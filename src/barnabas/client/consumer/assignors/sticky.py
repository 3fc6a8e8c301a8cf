"""Sticky assignment: as even as possible, and of all such assignments the one that moves the fewest partitions.

The members report their partitions. Of two members that report the same one, that of the later generation owns it; in
the same generation neither does. The cooperative form holds back the partitions that another member has to give up.
Where racks matter, further partitions move, but only to bring one more of them into the rack of its member.
"""

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from barnabas.client.consumer.assignors.balance import balance
from barnabas.client.consumer.assignors.members import (
    Assignments,
    LastAssignment,
    Member,
    ReplicaRacks,
    subscribers_of,
)
from barnabas.client.consumer.assignors.racks import far_from_owners, nearer, racks_matter, racks_of
from barnabas.types import TopicPartition

__all__ = ["CooperativeStickyAssignor", "StickyAssignor", "decode_previous", "encode_previous"]

_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_NOTHING: Final = LastAssignment((), -1)


class StickyAssignor:
    """The eager form: members give up all partitions before they join, and report them in their user data."""

    name = "sticky"
    cooperative = False

    def user_data(self, last: LastAssignment | None) -> bytes | None:
        return None if last is None else encode_previous(last)

    def assign(self, members: Sequence[Member], partition_counts: Mapping[str, int]) -> Assignments:
        return self.assign_near(members, partition_counts, {})

    def assign_near(
        self, members: Sequence[Member], partition_counts: Mapping[str, int], racks: ReplicaRacks
    ) -> Assignments:
        had = {member.member_id: decode_previous(member.user_data) for member in members}
        return _assign(members, partition_counts, had, racks)


class CooperativeStickyAssignor:
    """The cooperative form: members keep the partitions that do not move. A partition that moves has no owner until its
    old owner has given it up, and the next rebalance gives it to its new owner."""

    name = "cooperative-sticky"
    cooperative = True

    def user_data(self, last: LastAssignment | None) -> bytes | None:
        return _I32.pack(-1 if last is None else last.generation_id)

    def assign(self, members: Sequence[Member], partition_counts: Mapping[str, int]) -> Assignments:
        return self.assign_near(members, partition_counts, {})

    def assign_near(
        self, members: Sequence[Member], partition_counts: Mapping[str, int], racks: ReplicaRacks
    ) -> Assignments:
        had = {member.member_id: LastAssignment(member.owned, _generation_of(member)) for member in members}
        return _without_moving(_assign(members, partition_counts, had, racks), members)


def _generation_of(member: Member) -> int:
    """Returns a member's generation. Versions below 2 have it in their user data: alone (Java) or behind the partitions
    (franz-go)."""
    data = member.user_data
    if member.generation_id >= 0 or data is None:
        return member.generation_id
    return int(_I32.unpack(data)[0]) if len(data) == _I32.size else decode_previous(data).generation_id


def _without_moving(assignments: Assignments, members: Sequence[Member]) -> Assignments:
    """Leaves out the partitions that another member still owns."""
    claims: dict[TopicPartition, list[str]] = {}
    for member in members:
        for partition in member.owned:
            claims.setdefault(partition, []).append(member.member_id)
    return {
        name: [
            topic_partition
            for topic_partition in share
            if all(claimant == name for claimant in claims.get(topic_partition, ()))
        ]
        for name, share in assignments.items()
    }


# --- owners ----------------------------------------------------------------------------------------------------------


def _owners(
    members: Sequence[Member], partition_counts: Mapping[str, int], had: Mapping[str, LastAssignment]
) -> dict[TopicPartition, str]:
    """Returns the owner of each partition that exists and whose topic its owner still subscribes to."""
    owners: dict[TopicPartition, str] = {}
    latest: dict[TopicPartition, int] = {}
    for member in members:
        partitions, generation = had[member.member_id]
        topics = set(member.topics)
        for topic_partition in set(partitions):
            topic, partition = topic_partition
            if topic not in topics or not 0 <= partition < partition_counts.get(topic, 0):
                continue
            before = latest.get(topic_partition)
            if before is None or generation > before:
                owners[topic_partition], latest[topic_partition] = member.member_id, generation
            elif generation == before:
                owners.pop(topic_partition, None)
    return owners


def _assign(
    members: Sequence[Member],
    partition_counts: Mapping[str, int],
    had: Mapping[str, LastAssignment],
    racks: ReplicaRacks,
) -> Assignments:
    subscribers = subscribers_of(members, partition_counts)
    matter = racks_matter(
        members, (each for name in subscribers for each in racks_of(name, partition_counts[name], racks))
    )
    if matter:  # equals are told apart by their order, which must not be that in which they have joined
        members = sorted(members, key=lambda member: member.member_id)
        subscribers = subscribers_of(members, partition_counts)
    owners = _owners(members, partition_counts, had)
    if all(len(wanting) == len(members) for wanting in subscribers.values()):
        far = far_from_owners(owners, members, racks) if matter else ()
        assignments = _even(members, subscribers, partition_counts, owners, far)
    else:
        assignments = balance(members, subscribers, partition_counts, owners)
    if matter:
        assignments = nearer(assignments, members, subscribers, racks, owners)
    for share in assignments.values():
        share.sort()
    return assignments


def _even(
    members: Sequence[Member],
    topics: Iterable[str],
    partition_counts: Mapping[str, int],
    owners: Mapping[TopicPartition, str],
    far: Collection[TopicPartition],
) -> Assignments:
    """Assigns partitions to members that all subscribe to all topics: each gets `low` or `low + 1`, first of its
    own, of these last the ones in `far`."""
    assignments: Assignments = {name: [] for name in sorted(member.member_id for member in members)}
    partitions = [TopicPartition(topic, index) for topic in topics for index in range(partition_counts[topic])]
    if not assignments:
        return assignments
    low, extra = divmod(len(partitions), len(assignments))
    for topic_partition, owner in owners.items():
        assignments[owner].append(topic_partition)
    for share in sorted(assignments.values(), key=len, reverse=True):
        keep = low
        if len(share) > low and extra:
            keep, extra = low + 1, extra - 1
        if len(share) > keep:
            share.sort(key=lambda each: (each in far, each.partition, each.topic))
            del share[keep:]
    taken = {topic_partition for share in assignments.values() for topic_partition in share}
    free = [topic_partition for topic_partition in partitions if topic_partition not in taken]
    _deal(assignments, free, low, extra)
    return assignments


def _deal(assignments: Assignments, free: Sequence[TopicPartition], low: int, extra: int) -> None:
    """Deals out the free partitions in turns to members below `low`, then one more each to some members with `low`."""
    hungry = [name for name, share in assignments.items() if len(share) < low]
    satisfied = [name for name, share in assignments.items() if len(share) == low]
    rest = iter(free)
    while hungry:
        for name in hungry:
            assignments[name].append(next(rest))
            if len(assignments[name]) == low:
                satisfied.append(name)
        hungry = [name for name in hungry if len(assignments[name]) < low]
    for name, topic_partition in zip(satisfied, rest, strict=False):
        assignments[name].append(topic_partition)


# --- user data of the eager form -------------------------------------------------------------------------------------


def encode_previous(last: LastAssignment) -> bytes:
    """Returns the bytes of topics, partitions and generation in version 1 of Kafka's schema."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(last.partitions):
        topics.setdefault(topic, []).append(partition)
    out = bytearray(_I32.pack(len(topics)))
    for topic, partitions in topics.items():
        name = topic.encode()
        out += _I16.pack(len(name)) + name + struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return bytes(out + _I32.pack(last.generation_id))


def decode_previous(data: bytes | None) -> LastAssignment:
    """Returns the assignment of user data; no partitions and generation -1 for other bytes. Version 0 has no
    generation."""
    if not data:
        return _NOTHING
    found: list[TopicPartition] = []
    try:
        (count,) = _I32.unpack_from(data)
        position = _I32.size
        if count < 0:
            return _NOTHING
        for _ in range(count):
            (size,) = _I16.unpack_from(data, position)
            topic = data[position + 2 : position + 2 + size].decode()
            position += 2 + size
            (number,) = _I32.unpack_from(data, position)
            if size < 0 or number < 0:
                return _NOTHING
            found += [TopicPartition(topic, index) for index in struct.unpack_from(f">{number}i", data, position + 4)]
            position += 4 + 4 * number
        generation = _I32.unpack_from(data, position)[0] if position < len(data) else -1
    except (struct.error, UnicodeDecodeError, OverflowError):
        return _NOTHING
    return LastAssignment(tuple(found), generation)
