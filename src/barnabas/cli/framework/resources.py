"""The topics, partitions, groups and brokers that a command line names: `NAME`, `^PATTERN`, `TOPIC:0,2,5-7`."""

import re
import reprlib
from collections.abc import Iterable, Sequence

from barnabas import Admin
from barnabas.cli.framework.options import parse_partitions
from barnabas.cli.framework.output import CommandFailed, notice
from barnabas.client.admin.cluster import ClusterDescription
from barnabas.connection.cluster import TopicView
from barnabas.errors import InvalidTopic, ItemsFailed, UnknownTopicOrPartition, UsageError
from barnabas.metadata.topic_names import MAX_NAME_LENGTH, validate_topic_name
from barnabas.types import TopicPartition

__all__ = [
    "PARTITIONS",
    "are",
    "broker_ids",
    "check_partitions",
    "check_topic",
    "check_topic_name",
    "chosen_names",
    "chosen_partitions",
    "chosen_topics",
    "is_pattern",
    "live_brokers",
    "name_pattern",
    "plural",
    "split_partitions",
    "watermarks",
]

PARTITIONS = "TOPIC[:0,2,5-7]"
"""The metavar of a topic, or of some of its partitions."""


def check_topic_name(text: str) -> None:
    """Raises UsageError for what no topic can be called, by Kafka's rules."""
    if len(text) > MAX_NAME_LENGTH:  # Kafka's message has the whole of it
        shown = reprlib.repr(text)
        raise UsageError(f"{shown} has {len(text):,} characters, and the name of a topic at most {MAX_NAME_LENGTH}")
    try:
        validate_topic_name(text)
    except InvalidTopic as error:
        raise UsageError(str(error)) from None


def check_topic(text: str) -> None:
    """Raises UsageError unless it can be the name of a topic, or is a pattern."""
    if is_pattern(text):
        name_pattern(text)
    else:
        check_topic_name(text)


def check_partitions(text: str) -> None:
    """Raises UsageError unless it can be a topic, some of its partitions, or is a pattern."""
    check_topic(split_partitions(text)[0])


def is_pattern(name: str) -> bool:
    """Whether it is a regular expression: it begins with `^`, which no name of a topic does."""
    return name.startswith("^")


def name_pattern(text: str) -> re.Pattern[str]:
    """Returns a pattern for whole names that begin as `text` says, as in librdkafka's tools; a `$` in it ends the name.
    Raises UsageError."""
    try:
        re.compile(text)  # for an error message with the text as given
        return re.compile(f"(?:{text}).*")
    except re.error as error:
        raise UsageError(f"regular expression {text!r}: {error}") from None


def chosen_names(asked: Iterable[str], there: Iterable[str], what: str) -> list[str]:
    """Returns the names, each once, with patterns replaced by the names `there` that they match. Raises CommandFailed
    for a pattern that matches nothing."""
    names = list(there)
    found: list[str] = []
    for text in asked:
        if not is_pattern(text):
            found.append(text)
            continue
        pattern = name_pattern(text)
        matching = [name for name in names if pattern.fullmatch(name)]
        if not matching:
            raise CommandFailed(f"no {what} matches {text}; there {are(len(names), what)}")
        found += matching
    return list(dict.fromkeys(found))


def chosen_topics(admin: Admin, asked: Sequence[str]) -> list[TopicView]:
    """Returns the topics of these names and patterns; without any, all but internal topics.

    Raises UnknownTopicOrPartition (within ItemsFailed), CommandFailed, UsageError.
    """
    if not asked:
        return admin.list_topics()
    if not any(map(is_pattern, asked)):
        found = admin.describe_topics(asked)
        return [found[name] for name in dict.fromkeys(asked)]
    there = {view.name: view for view in admin.list_topics(internal=True)}
    names = chosen_names(asked, there, "topic")
    missing = [name for name in names if name not in there]
    if missing:
        there |= admin.describe_topics(missing)  # raises for topics that do not exist
    return [there[name] for name in names]


def chosen_partitions(admin: Admin, asked: Sequence[str]) -> list[TopicPartition]:
    """Returns the partitions of `flights`, `flights:0,2` and `^flights`, each once. Raises as `chosen_topics`."""
    found: dict[TopicPartition, None] = {}
    for text in asked:
        name, numbers = split_partitions(text)
        for view in chosen_topics(admin, [name]):
            for number in view.partitions if numbers is None else numbers:
                if number not in view.partitions:
                    last = len(view.partitions) - 1
                    raise UnknownTopicOrPartition(f"topic {view.name!r} has partitions 0 to {last}, not {number}")
                found[TopicPartition(view.name, number)] = None
    return list(found)


def split_partitions(text: str) -> tuple[str, list[int] | None]:
    """Returns (topic or pattern, its partitions or None for all) of `flights:0,2,5-7`. Raises UsageError."""
    name, colon, numbers = (text, "", "") if is_pattern(text) else text.partition(":")
    return name, parse_partitions(numbers) if colon else None


def broker_ids(admin: Admin, asked: Iterable[int] | None, *, include_fenced: bool = False) -> list[int]:
    """Returns these brokers, or for None all that are live, with `include_fenced` all that are registered. Raises
    CommandFailed for one that is not among them."""
    there = sorted(admin.describe_cluster(include_fenced=include_fenced).brokers)
    for broker_id in asked or ():
        if broker_id not in there:
            known = ", ".join(map(str, there))
            raise CommandFailed(f"broker {broker_id} is not in the cluster; its brokers are {known}")
    return there if asked is None else list(dict.fromkeys(asked))


def live_brokers(admin: Admin) -> ClusterDescription:
    """Returns the cluster with its live brokers alone, and says on standard error which others there are."""
    described = admin.describe_cluster(include_fenced=True)
    if described.fenced:
        ids = ", ".join(map(str, sorted(described.fenced)))
        notice(f"left out, not live: {plural(len(described.fenced), 'broker')} ({ids})")
    live = {node_id: broker for node_id, broker in described.brokers.items() if node_id not in described.fenced}
    return described._replace(brokers=live)


def known_releases(admin: Admin) -> dict[int, str]:
    """Returns the releases of the live brokers that tell it within the time."""
    try:
        return admin.broker_releases()
    except ItemsFailed as error:
        return {node_id: release for node_id, release in error.succeeded.items() if release is not None}


def watermarks(
    admin: Admin, partitions: Iterable[TopicPartition], *, isolation: str = "read_uncommitted"
) -> dict[TopicPartition, tuple[int, int]]:
    """Returns the (earliest, end) offsets of the partitions; the end is exclusive."""
    wanted = list(partitions)
    low = admin.list_offsets(dict.fromkeys(wanted, "earliest"))
    high = admin.list_offsets(dict.fromkeys(wanted, "latest"), isolation=isolation)
    return {tp: (low[tp].offset, high[tp].offset) for tp in wanted}


def some(names: Sequence[object], most: int = 3) -> str:
    """`t-0, t-1, t-2 and 5 more`."""
    more = len(names) - most
    return ", ".join(map(str, names[:most])) + (f" and {more} more" if more > 0 else "")


def are(count: int, what: str) -> str:
    """`is 1 topic`, `are 3 topics`, `are no topics`."""
    return f"{'is' if count == 1 else 'are'} {plural(count, what)}"


def plural(count: int, what: str) -> str:
    """`1 topic`, `3 topics`, `no topics`."""
    return f"{count or 'no'} {what}{'s' if count != 1 else ''}"
