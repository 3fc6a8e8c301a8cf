"""Sticky assignment: as even as can be, and of all such the one that moves least from what the members have.

Who has a partition is what the members say; of two that claim the same one the later generation is right, and if both
are of one generation neither is. The cooperative form holds back what another member has to give up first.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from barnabas.client.consumer.assignors.balance import balance
from barnabas.client.consumer.assignors.members import LastAssignment, Member, Shares, subscribers_of
from barnabas.types import TopicPartition

__all__ = ["CooperativeStickyAssignor", "StickyAssignor", "decode_previous", "encode_previous"]

_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_NOTHING: Final = LastAssignment((), -1)


class StickyAssignor:
    """Eager: members give up everything before they join, and tell what they had in their user data."""

    name = "sticky"
    cooperative = False

    def user_data(self, last: LastAssignment | None) -> bytes | None:
        return None if last is None else encode_previous(last)

    def assign(self, members: Sequence[Member], partition_counts: Mapping[str, int]) -> Shares:
        had = {member.member_id: decode_previous(member.user_data) for member in members}
        return _share(members, partition_counts, had)


class CooperativeStickyAssignor:
    """Members keep what does not move. What moves is given to nobody first, and to its new owner by the rebalance that
    follows when the old one has given it up."""

    name = "cooperative-sticky"
    cooperative = True

    def user_data(self, last: LastAssignment | None) -> bytes | None:
        return _I32.pack(-1 if last is None else last.generation_id)

    def assign(self, members: Sequence[Member], partition_counts: Mapping[str, int]) -> Shares:
        had = {member.member_id: LastAssignment(member.owned, _generation_of(member)) for member in members}
        return _without_moving(_share(members, partition_counts, had), members)


def _generation_of(member: Member) -> int:
    """Members of versions below 2 have it in their user data: alone as Java, or behind what they had as franz-go."""
    data = member.user_data
    if member.generation_id >= 0 or data is None:
        return member.generation_id
    return int(_I32.unpack(data)[0]) if len(data) == _I32.size else decode_previous(data).generation_id


def _without_moving(shares: Shares, members: Sequence[Member]) -> Shares:
    """The shares less what any other member still has."""
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
        for name, share in shares.items()
    }


# --- who had what ----------------------------------------------------------------------------------------------------


def _owners(
    members: Sequence[Member], partition_counts: Mapping[str, int], had: Mapping[str, LastAssignment]
) -> dict[TopicPartition, str]:
    """Partition to the member that rightly has it, of those that exist and that the member still wants."""
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


def _share(members: Sequence[Member], partition_counts: Mapping[str, int], had: Mapping[str, LastAssignment]) -> Shares:
    owners = _owners(members, partition_counts, had)
    subscribers = subscribers_of(members, partition_counts)
    if all(len(wanting) == len(members) for wanting in subscribers.values()):
        shares = _even(members, subscribers, partition_counts, owners)
    else:
        shares = balance(members, subscribers, partition_counts, owners)
    for share in shares.values():
        share.sort()
    return shares


def _even(
    members: Sequence[Member],
    topics: Iterable[str],
    partition_counts: Mapping[str, int],
    owners: Mapping[TopicPartition, str],
) -> Shares:
    """All want all topics: each gets `low` or `low + 1`, and whoever has more than that keeps as much as it may."""
    shares: Shares = {name: [] for name in sorted(member.member_id for member in members)}
    partitions = [TopicPartition(topic, index) for topic in topics for index in range(partition_counts[topic])]
    if not shares:
        return shares
    low, extra = divmod(len(partitions), len(shares))
    for topic_partition, owner in owners.items():
        shares[owner].append(topic_partition)
    for share in sorted(shares.values(), key=len, reverse=True):
        keep = low
        if len(share) > low and extra:
            keep, extra = low + 1, extra - 1
        if len(share) > keep:
            share.sort(key=lambda topic_partition: (topic_partition.partition, topic_partition.topic))
            del share[keep:]
    taken = {topic_partition for share in shares.values() for topic_partition in share}
    free = [topic_partition for topic_partition in partitions if topic_partition not in taken]
    _deal(shares, free, low, extra)
    return shares


def _deal(shares: Shares, free: Sequence[TopicPartition], low: int, extra: int) -> None:
    """Deal out what is free in turns to those below `low`, then one more each to some that are at it."""
    hungry = [name for name, share in shares.items() if len(share) < low]
    satisfied = [name for name, share in shares.items() if len(share) == low]
    rest = iter(free)
    while hungry:
        for name in hungry:
            shares[name].append(next(rest))
            if len(shares[name]) == low:
                satisfied.append(name)
        hungry = [name for name in hungry if len(shares[name]) < low]
    for name, topic_partition in zip(satisfied, rest, strict=False):
        shares[name].append(topic_partition)


# --- user data of the eager form -------------------------------------------------------------------------------------


def encode_previous(last: LastAssignment) -> bytes:
    """[topic, [partition]], generation: version 1 of Kafka's schema."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(last.partitions):
        topics.setdefault(topic, []).append(partition)
    out = bytearray(_I32.pack(len(topics)))
    for topic, partitions in topics.items():
        name = topic.encode()
        out += _I16.pack(len(name)) + name + struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return bytes(out + _I32.pack(last.generation_id))


def decode_previous(data: bytes | None) -> LastAssignment:
    """Nothing, in generation -1, for bytes that are something else. Version 0 has no generation."""
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
