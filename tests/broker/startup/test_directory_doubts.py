"""What a broker that starts believes of its data directories: pure decisions over images."""

import logging
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from uuid import UUID

import pytest

from barnabas.broker.cluster.metadata_copy import write_copy
from barnabas.broker.startup.directory_age import Age, DirectoryDoubts, UnconfirmedReplicas, age_of
from barnabas.broker.startup.directory_check import MissingDirectories
from barnabas.errors import DirectoryUnusable, UsageError
from barnabas.log.directories.checkpoints import (
    HIGH_WATERMARK_CHECKPOINT,
    METADATA_COPY,
    format_topic_id,
    parse_topic_id,
    write_offset_checkpoint,
)
from barnabas.log.directories.data_directory import DataDirectory
from barnabas.log.directories.registration_mark import REGISTRATION, RegistrationMark
from barnabas.metadata.image import NO_LEADER, BrokerImage, MetadataImage, PartitionImage, TopicImage
from barnabas.registry.registry import LastRegistration
from barnabas.types import BrokerId, LeaderEpoch, Offset, TopicPartition

ME, OTHER, THIRD = BrokerId(1), BrokerId(2), BrokerId(3)
HERE, GONE, OLD = UUID(int=1), UUID(int=2), UUID(int=3)
LAST = LastRegistration("last", 7)
NOW = RegistrationMark("last", "", 7)
Isr = tuple[tuple[BrokerId, ...], tuple[BrokerId, ...], tuple[BrokerId, ...]]


@pytest.mark.parametrize(
    ("mark", "recorded", "last", "logs", "age"),
    [
        (RegistrationMark(), (), LastRegistration(), False, Age.NEW),
        (RegistrationMark(), (), LastRegistration(), True, Age.CURRENT),
        (RegistrationMark(), (HERE,), LastRegistration(), True, Age.CURRENT),
        (NOW, (HERE,), LAST, True, Age.CURRENT),
        (RegistrationMark("before", "last", 6), (HERE,), LAST, True, Age.CURRENT),
        (RegistrationMark("last", "never made", 7), (HERE,), LAST, True, Age.CURRENT),
        (RegistrationMark("before", "", 6), (HERE,), LAST, True, Age.OLD),
        (RegistrationMark("before", "", 6), (HERE,), LAST, False, Age.OLD),
        (RegistrationMark("before", "never made", 6), (HERE,), LAST, True, Age.OLD),
        (RegistrationMark(), (HERE,), LAST, True, Age.OLD),
        (RegistrationMark("of the same epoch", "", 7), (HERE,), LAST, True, Age.OLD),
        (NOW, (GONE,), LAST, True, Age.OLD),
        (RegistrationMark(), (GONE,), LAST, False, Age.NEW),
        (RegistrationMark("later", "", 8), (HERE,), LAST, True, Age.NEWER),
        (RegistrationMark("later", "", 8), (GONE,), LAST, True, Age.NEWER),
        (RegistrationMark("before", "", 8), (HERE,), LastRegistration(), True, Age.CURRENT),
        (RegistrationMark("before", "", 8), (), LastRegistration(), True, Age.CURRENT),
        (RegistrationMark("last", "", 7), (), LastRegistration("", 7), True, Age.CURRENT),
        (RegistrationMark("before", "", 6), (), LastRegistration("", 7), True, Age.OLD),
        (RegistrationMark("later", "", 8), (), LastRegistration("", 7), True, Age.NEWER),
        (RegistrationMark(), (), LastRegistration("", 7), True, Age.CURRENT),
    ],
)
def test_the_age_of_a_directory(
    mark: RegistrationMark, recorded: Collection[UUID], last: LastRegistration, logs: bool, age: Age
) -> None:
    assert age_of(mark, recorded, last, HERE, logs=logs) is age


def image_of(*partitions: Isr, fenced: Collection[BrokerId] = ()) -> MetadataImage:
    """Returns an image with one topic, by replicas, ISR and ELR of its partitions."""
    images = tuple(
        PartitionImage(NO_LEADER, LeaderEpoch(0), replicas, isr, elr=elr) for replicas, isr, elr in partitions
    )
    brokers = {node_id: BrokerImage(node_id, 1, (), fenced=node_id in fenced) for node_id in (ME, OTHER, THIRD)}
    return MetadataImage("c", brokers=brokers, topics={"t": TopicImage("t", UUID(int=9), images)})


def claimed(root: Path, directory_id: UUID, *logs: int, mark: RegistrationMark = NOW) -> DataDirectory:
    path = root / str(directory_id.int)
    path.mkdir()
    for number in logs:
        (path / f"t-{number}").mkdir()
    directory = DataDirectory(str(path))
    directory.directory_id, directory.used, directory.mark = directory_id, True, mark
    return directory


def doubts_of(
    image: MetadataImage, recorded: Collection[UUID], *directories: DataDirectory, **declared: Collection[UUID]
) -> DirectoryDoubts:
    paths = {directory_id: f"/data/{directory_id.int}" for directory_id in recorded}
    return DirectoryDoubts(image, ME, paths, LAST, directories, **declared)


ALL = (ME, OTHER, THIRD)


@pytest.mark.parametrize(
    ("partitions", "fenced", "dead", "outcome"),
    [
        ([], (), (), ()),
        ([(ALL, (ME, OTHER), ())], (), (), ("t-0",)),
        ([(ALL, (ME, OTHER), ())], (OTHER,), (), UnconfirmedReplicas),
        ([(ALL, (ME, OTHER), ())], (), (OTHER,), UnconfirmedReplicas),
        ([(ALL, (ME, OTHER), ())], (), (THIRD,), ("t-0",)),
        ([(ALL, (), (ME, OTHER))], (), (), UnconfirmedReplicas),
        ([(ALL, (OTHER,), ())], (OTHER,), (OTHER,), ("t-0",)),
        ([(ALL, (), (OTHER,))], (OTHER,), (), ("t-0",)),
        ([(ALL, (ME,), ())], (), (), MissingDirectories),
        ([(ALL, (), (ME,))], (), (), MissingDirectories),
        ([(ALL, (), ())], (), (), MissingDirectories),
        ([((ME,), (ME,), ())], (), (), MissingDirectories),
        ([((OTHER,), (OTHER,), ()), ((OTHER,), (), ())], (), (), ()),
        ([(ALL, (ME, OTHER), ()), (ALL, (ME,), ())], (), (), MissingDirectories),
        ([(ALL, (ME, OTHER), ()), (ALL, (ME, THIRD), ())], (), (THIRD,), UnconfirmedReplicas),
    ],
)
@pytest.mark.parametrize("what", ["missing", "old"])
def test_a_replica_in_doubt_is_given_up_only_if_somebody_alive_is_in_sync(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    what: str,
    partitions: Sequence[Isr],
    fenced: Collection[BrokerId],
    dead: Collection[BrokerId],
    outcome: tuple[str, ...] | type[UsageError],
) -> None:
    caplog.set_level(logging.INFO)
    image = image_of(*partitions, fenced=fenced)
    directories = [claimed(tmp_path, HERE)]
    if what == "old":
        directories.append(claimed(tmp_path, GONE, 0, mark=RegistrationMark("before", "", 5)))
    doubts = doubts_of(image, (HERE, GONE), *directories)
    assert doubts.exist
    ended = [(node_id, 1) for node_id in dead]
    if isinstance(outcome, tuple):
        assert doubts.lost_replicas(image, ended) == outcome
        doubts.tell()
        line = "/data/2 is missing: this broker copies" if what == "missing" else "has missed a start of this broker"
        assert [line in record.getMessage() for record in caplog.records] == [True]
        return
    with pytest.raises(UsageError) as refused:
        doubts.lost_replicas(image, ended)
    assert type(refused.value) is (DirectoryUnusable if what == "old" and outcome is MissingDirectories else outcome)
    option = "--lost-dir" if what == "missing" else "--accept-old-dir"
    assert f"{option}=AAAAAAAAAAAAAAAAAAAAAg" in str(refused.value)


def test_what_is_in_a_current_directory_is_not_in_doubt(tmp_path: Path) -> None:
    image = image_of(((ME,), (ME,), ()), (ALL, (ME,), ()), (ALL, (ME, OTHER), ()))
    current = claimed(tmp_path, HERE, 0, 1)
    assert doubts_of(image, (HERE, GONE), current).lost_replicas(image, ()) == ("t-2",)
    old = claimed(tmp_path, OLD, 0, 1, mark=RegistrationMark("before", "", 5))
    with pytest.raises(MissingDirectories):
        doubts_of(image, (OLD, GONE), old).lost_replicas(image, ())


def test_nothing_is_in_doubt_where_all_directories_are_current(tmp_path: Path) -> None:
    image = image_of((ALL, (ME,), ()))
    doubts = doubts_of(image, (HERE,), claimed(tmp_path, HERE), claimed(tmp_path, UUID(int=8)))
    assert not doubts.exist
    assert doubts.lost_replicas(image, ()) == ()


def test_the_operator_gives_up_what_is_lost(tmp_path: Path) -> None:
    image = image_of((ALL, (ME,), ()), (ALL, (ME, OTHER), ()), fenced=(OTHER,))
    assert doubts_of(image, (HERE, GONE), claimed(tmp_path, HERE), lost=(GONE,)).lost_replicas(image, ()) == (
        "t-1",
        "t-0",
    )


def test_the_operator_accepts_an_old_copy_where_nobody_else_can_lead(tmp_path: Path) -> None:
    image = image_of((ALL, (ME,), ()), (ALL, (ME, OTHER), ()), ((ME,), (ME,), ()), fenced=(OTHER,))
    old = claimed(tmp_path, OLD, 0, 1, 2, mark=RegistrationMark("before", "", 5))
    assert doubts_of(image, (OLD,), old, accepted=(OLD,)).lost_replicas(image, ()) == ("t-1",)
    assert old.is_old


def test_what_is_accepted_does_not_stand_in_the_way_of_others(tmp_path: Path) -> None:
    image = image_of(((ME,), (ME,), ()), (ALL, (ME, OTHER), ()))
    old = claimed(tmp_path, OLD, 0, mark=RegistrationMark("before", "", 5))
    doubts = doubts_of(image, (OLD, GONE), old, accepted=(OLD,))
    assert doubts.lost_replicas(image, ()) == ("t-1",)
    with pytest.raises(UnconfirmedReplicas):
        doubts.lost_replicas(image, [(OTHER, 1)])


def test_a_directory_that_is_newer_than_the_registry_is_refused(tmp_path: Path) -> None:
    newer = claimed(tmp_path, HERE, mark=RegistrationMark("later", "", 8))
    with pytest.raises(UsageError, match=r"newer than the registry.*epoch 8.*after 7.*barnabas cluster recover"):
        doubts_of(image_of(), (HERE,), newer)


def test_alone_a_broker_misses_a_directory_without_records(tmp_path: Path) -> None:
    image = MetadataImage("c", brokers={ME: BrokerImage(ME, 1, ())})
    with pytest.raises(MissingDirectories):
        doubts_of(image, (HERE, GONE), claimed(tmp_path, HERE)).lost_replicas(image, ())


@pytest.mark.parametrize(("offset", "in_doubt"), [(5, True), (0, False)])
def test_a_log_that_has_vanished_is_in_doubt(tmp_path: Path, offset: int, in_doubt: bool) -> None:
    """Its checkpoint tells it from one that was never made."""
    image = image_of((ALL, (ME, OTHER), ()), (ALL, (ME,), ()))
    directory = claimed(tmp_path, HERE, 1)
    write_offset_checkpoint(f"{directory.path}/{HIGH_WATERMARK_CHECKPOINT}", {TopicPartition("t", 0): Offset(offset)})
    doubts = doubts_of(image, (HERE,), directory)
    assert doubts.exist is in_doubt
    assert doubts.lost_replicas(image, ()) == (("t-0",) if in_doubt else ())
    if in_doubt:
        with pytest.raises(UnconfirmedReplicas, match="has lost the logs of t-0, and nobody who is alive has all"):
            doubts.lost_replicas(image, [(OTHER, 1)])


@pytest.mark.parametrize(("known", "in_doubt"), [({"t": UUID(int=9)}, True), ({"t": UUID(int=8)}, False), ({}, False)])
def test_the_checkpoint_of_a_topic_that_was_deleted_and_made_anew_is_not_that_of_the_new_one(
    tmp_path: Path, known: dict[str, UUID], in_doubt: bool
) -> None:
    """The copy of the metadata, which is newer than the checkpoint, tells which topic that was."""
    image = image_of((ALL, (ME, OTHER), ()))
    directory = claimed(tmp_path, HERE)
    write_offset_checkpoint(f"{directory.path}/{HIGH_WATERMARK_CHECKPOINT}", {TopicPartition("t", 0): Offset(5)})
    topics = {name: image.topics[name]._replace(topic_id=topic_id) for name, topic_id in known.items()}
    write_copy(f"{directory.path}/{METADATA_COPY}", MetadataImage("c", version=1, topics=topics))
    assert doubts_of(image, (HERE,), directory).exist is in_doubt


@pytest.mark.parametrize(
    ("partitions", "logs", "mark", "epoch", "outcome"),
    [
        ([(ALL, (ME, OTHER), ())], None, None, 7, ("t-0",)),
        ([(ALL, (OTHER,), (ME,))], (), None, 7, ("t-0",)),
        ([(ALL, (ME, THIRD), ())], None, None, 7, UnconfirmedReplicas),
        ([((ME,), (ME,), ())], None, None, 7, MissingDirectories),
        ([((ME,), (ME,), ())], None, None, None, MissingDirectories),
        ([((ME,), (ME,), ())], (), NOW, 7, MissingDirectories),
        ([(ALL, (ME, THIRD), ())], (0,), NOW, 7, None),
        ([(ALL, (ME, THIRD), ())], (0,), RegistrationMark("before", "", 6), 7, UnconfirmedReplicas),
        ([(ALL, (OTHER,), ())], None, None, 7, None),
        ([((ME,), (ME,), ())], None, None, 0, None),
        ([((ME,), (ME,), ()), (ALL, (ME,), ())], (1,), RegistrationMark(), 7, None),
    ],
    ids=[
        "not mounted, and another one is in sync",
        "empty, and another one leads",
        "not mounted, and the other one is fenced",
        "the only replica is not mounted",
        "the registration is gone as well",
        "one of two directories is not mounted",
        "all is there",
        "an old copy",
        "it was not eligible",
        "it has never registered, or was given up",
        "a release before recorded nothing",
    ],
)
def test_a_broker_whose_directories_the_registry_has_forgotten_is_not_taken_for_a_new_one(
    tmp_path: Path,
    partitions: Sequence[Isr],
    logs: Sequence[int] | None,
    mark: RegistrationMark | None,
    epoch: int | None,
    outcome: tuple[str, ...] | type[UsageError] | None,
) -> None:
    """As when somebody has deleted them in ZooKeeper while the broker was down, and its disk was not mounted then."""
    image = image_of(*partitions, fenced=(THIRD,))
    others = {node_id: broker for node_id, broker in image.brokers.items() if node_id != ME}
    me = {} if epoch is None else {ME: BrokerImage(ME, epoch, (), fenced=True)}
    image = MetadataImage("c", brokers=others | me, topics=image.topics)
    directory = DataDirectory(str(tmp_path / "away"))
    if logs is not None:
        directory = claimed(tmp_path, HERE, *logs, mark=mark or RegistrationMark())
    declared: dict[str, Collection[UUID]] = {}

    def doubts() -> DirectoryDoubts:
        return DirectoryDoubts(image, ME, {}, LastRegistration(), [directory], **declared)

    if not isinstance(outcome, type):
        assert doubts().exist is bool(outcome)
        assert doubts().lost_replicas(image, ()) == (outcome or ())
        return
    with pytest.raises(outcome) as refused:
        doubts().lost_replicas(image, ())
    option = re.search(r"--(lost|accept-old)-dir=([\w-]{22})", str(refused.value))
    assert option is not None
    declared["lost" if option[1] == "lost" else "accepted"] = [parse_topic_id(option[2])]
    doubts().lost_replicas(image, ())  # the way out is one


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "is missing"),
        (b"", r"is damaged \(it is empty\)"),
        (b"\xff", r"is damaged \(it is not the JSON that a broker writes\)"),
        (b"{}", r"is damaged \(it is not the JSON that a broker writes\)"),
        ("a directory", r"cannot be read \(Is a directory\)"),
    ],
)
def test_a_registration_file_that_says_nothing_is_named(
    tmp_path: Path, content: bytes | str | None, problem: str
) -> None:
    path = tmp_path / REGISTRATION
    (tmp_path / "t-0").mkdir()
    (tmp_path / "meta.properties").write_text(f"version=1\nnode.id=1\ndirectory.id={format_topic_id(HERE)}\n")
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        path.mkdir()
    directory = DataDirectory(str(tmp_path))
    directory.claim()
    try:
        doubts = doubts_of(image_of((ALL, (ME,), ())), (HERE,), directory)
        named = re.escape(f"{path} ") + problem + r", without which .* counts as an old copy, .*--accept-old-dir="
        with pytest.raises(DirectoryUnusable, match=named):
            doubts.lost_replicas(image_of((ALL, (ME,), ())), ())
    finally:
        directory.unlock()


@pytest.mark.parametrize(
    ("partition", "fenced", "outcome"),
    [
        ((ALL, (ME, OTHER), ()), (), ("t-0",)),
        ((ALL, (ME, OTHER), ()), (OTHER,), UnconfirmedReplicas),
        ((ALL, (), (ME, OTHER)), (), UnconfirmedReplicas),
        ((ALL, (OTHER,), ()), (OTHER,), ("t-0",)),
        ((ALL, (ME,), ()), (), ()),
        (((ME,), (ME,), ()), (), ()),
    ],
)
def test_a_damaged_log_leads_only_where_nobody_else_can_have_all_records(
    tmp_path: Path, partition: Isr, fenced: Collection[BrokerId], outcome: tuple[str, ...] | type[UsageError]
) -> None:
    image, directory = image_of(partition, fenced=fenced), claimed(tmp_path, HERE, 0)
    doubts = doubts_of(image, (HERE,), directory)
    assert not doubts.exist
    assert doubts.note_damaged(image, {TopicPartition("t", 0): directory}) is doubts.exist is (outcome != ())
    assert doubts.given_up == ({TopicPartition("t", 0)} if outcome else set())
    if isinstance(outcome, tuple):
        assert doubts.lost_replicas(image, ()) == outcome
        return
    with pytest.raises(outcome, match=r"has damaged logs, of t-0.*--accept-old-dir=AAAAAAAAAAAAAAAAAAAAAQ"):
        doubts.lost_replicas(image, ())
    accepting = doubts_of(image, (HERE,), directory, accepted=(HERE,))
    assert accepting.note_damaged(image, {TopicPartition("t", 0): directory})
    assert accepting.lost_replicas(image, ()) == ()
    assert accepting.kept == {TopicPartition("t", 0)}
