"""A broker whose data directories are not all there: not mounted, moved, lost, or from before ids were recorded."""

import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from barnabas.errors import UsageError
from barnabas.log.directories.checkpoints import METADATA_COPY, read_properties
from barnabas.log.log_damage import MARK
from barnabas.testing import Broker
from barnabas.types import TopicPartition
from broker.served import Served
from broker.startup.test_startup_errors import serve
from broker.wire import server_of

PARTITIONS = 4


def broker_on(*directories: Path) -> Broker:
    return Broker(data_dir=",".join(map(str, directories)))


def directory_id(directory: Path) -> str:
    return read_properties(f"{directory}/meta.properties")["directory.id"]


def logs_in(directory: Path) -> list[int]:
    return sorted(int(path.name[2:]) for path in directory.glob("t-[0-9]"))


def produce_to_all(broker: Broker) -> None:
    for partition in range(PARTITIONS):
        broker.produce("t", b"kept", partition=partition)


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """The directories of a broker that was stopped; each has two partitions of t, with a record in each."""
    first, second = tmp_path / "first", tmp_path / "second"
    with broker_on(first, second) as broker:
        broker.create_topic("t", partitions=PARTITIONS)
        produce_to_all(broker)
    assert (len(logs_in(first)), len(logs_in(second))) == (2, 2)
    return first, second


@pytest.mark.parametrize("mount_point", [True, False], ids=["empty", "gone"])
def test_a_missing_directory_is_named_and_nothing_is_made_in_its_place(
    two: tuple[Path, Path], tmp_path: Path, mount_point: bool
) -> None:
    first, second = two
    missing = directory_id(second)
    second.rename(tmp_path / "unmounted")
    if mount_point:
        second.mkdir()
    line = serve(f"{first},{second}").line
    assert f"{second} (directory.id {missing}), which is missing: mount it" in line
    assert f"--lost-dir={missing}" in line
    if mount_point:
        assert list(second.iterdir()) == []
        second.rmdir()
    assert not second.exists()
    (tmp_path / "unmounted").rename(second)
    with broker_on(first, second) as broker:
        assert broker.end_offsets("t") == [1] * PARTITIONS


def test_a_directory_left_out_of_log_dirs_is_missed(two: tuple[Path, Path]) -> None:
    first, second = two
    assert f"{second} (directory.id" in serve(first).line


def test_another_directory_at_the_same_path_is_not_the_missing_one(two: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = two
    second.rename(tmp_path / "unmounted")
    with broker_on(tmp_path / "other"):
        pass
    (tmp_path / "other" / "registry.db").unlink()
    shutil.copytree(tmp_path / "other", second)
    line = serve(f"{first},{second}").line
    assert line.startswith(f"{second}/meta.properties says cluster.id="), "--lost-dir would be no way out"
    properties = second / "meta.properties"
    cluster_id = read_properties(f"{first}/meta.properties")["cluster.id"]
    properties.write_text(re.sub("cluster.id=.*", f"cluster.id={cluster_id}", properties.read_text()))
    assert "which is missing" in serve(f"{first},{second}").line


@pytest.mark.parametrize("moved", [0, 1], ids=["with the registry", "without the registry"])
def test_a_directory_may_move(two: tuple[Path, Path], tmp_path: Path, moved: int) -> None:
    directories = list(two)
    directories[moved] = two[moved].rename(tmp_path / "elsewhere")
    with broker_on(*directories) as broker:
        assert broker.end_offsets("t") == [1] * PARTITIONS
    directories[moved].rename(two[moved])
    with broker_on(*two) as broker:
        assert broker.end_offsets("t") == [1] * PARTITIONS


def test_directories_may_be_named_in_another_order(two: tuple[Path, Path]) -> None:
    first, second = two
    with broker_on(second, first) as broker:
        assert broker.topics() == ["t"]
        assert broker.end_offsets("t") == [1] * PARTITIONS
    assert not (second / "registry.db").exists()


def test_a_directory_may_be_added_in_front_of_the_registrys(two: tuple[Path, Path], tmp_path: Path) -> None:
    new = tmp_path / "new"
    with broker_on(new, *two) as broker:
        assert broker.end_offsets("t") == [1] * PARTITIONS
    assert f"{new} (directory.id" in serve(f"{two[0]},{two[1]}").line, "from now on it belongs to the broker"


def test_a_missing_registry_is_not_made_anew(two: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = two
    first.rename(tmp_path / "unmounted")
    line = serve(f"{first},{second}").line
    assert f"is {first} not mounted? Mount it" in line
    assert not first.exists()
    (tmp_path / "unmounted").rename(first)
    with broker_on(first, second) as broker:
        assert broker.end_offsets("t") == [1] * PARTITIONS


def test_a_first_start_that_failed_at_one_directory_may_be_repeated(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    (second / ".lock").mkdir(parents=True)
    assert f"data directory {second} cannot be used" in serve(f"{first},{second}").line
    assert (first / "meta.properties").exists()
    (second / ".lock").rmdir()
    with broker_on(first, second) as broker:
        broker.create_topic("t", partitions=PARTITIONS)
        produce_to_all(broker)
        assert broker.end_offsets("t") == [1] * PARTITIONS


def test_a_broker_without_records_misses_its_other_directory_too(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with broker_on(first, second):
        pass
    first.rename(tmp_path / "unmounted")
    assert f"is {first} not mounted? Mount it" in serve(f"{first},{second}").line


def test_two_registries_are_refused(two: tuple[Path, Path]) -> None:
    first, second = two
    shutil.copy(first / "registry.db", second / "registry.db")
    line = serve(f"{first},{second}").line
    assert f"{first}/registry.db and {second}/registry.db are both registries" in line


def test_a_copy_of_a_directory_is_not_a_second_one(two: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = two
    shutil.copytree(second, tmp_path / "copy")
    line = serve(f"{first},{second},{tmp_path / 'copy'}").line
    assert f"{second} and {tmp_path / 'copy'} have the same directory.id" in line


def test_directories_from_before_ids_were_recorded_are_taken_as_they_are(two: tuple[Path, Path]) -> None:
    first, second = two
    with closing(sqlite3.connect(first / "registry.db")) as db, db:
        db.execute("DROP TABLE directories")
    for directory in two:
        properties = directory / "meta.properties"
        properties.write_text(re.sub("directory.id=.*\n", "", properties.read_text()))
    with broker_on(first, second) as broker:
        assert broker.end_offsets("t") == [1] * PARTITIONS
    second.rename(second.with_name("unmounted"))
    assert f"{second} (directory.id" in serve(f"{first},{second}").line, "the upgrade has recorded them"


def test_a_lost_directory_can_be_given_up(two: tuple[Path, Path], tmp_path: Path) -> None:
    """Its partitions begin anew in another leader epoch, which clients that knew the records are to notice."""
    first, second = two
    kept, gone = logs_in(first), logs_in(second)
    lost = directory_id(second)
    second.rename(tmp_path / "broken")
    served = Served(tmp_path, f"{first},{second}", options=[f"--lost-dir={lost}"])
    served.stop()
    told = served.errors.read_text()
    assert "2 partitions have no log here and begin anew, empty: " + ", ".join(f"t-{number}" for number in gone) in told
    with broker_on(first, second) as broker:
        assert [broker.end_offsets("t")[number] for number in (*kept, *gone)] == [1, 1, 0, 0]
        partitions = server_of(broker).image.topics["t"].partitions
        assert [partitions[number].leader_epoch for number in (*kept, *gone)] == [0, 0, 1, 1]
        produce_to_all(broker)
    assert directory_id(second) != lost
    shutil.rmtree(second)
    shutil.copytree(tmp_path / "broken", second)
    line = serve(f"{first},{second}").line
    assert "which is missing" in line, "the one that was lost does not stand for the one that came after it"


def test_a_vanished_log_of_which_nobody_else_has_records_is_told_until_somebody_ends_that(
    two: tuple[Path, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    vanished = two[1] / f"t-{logs_in(two[1])[0]}"
    vanished.rename(tmp_path / "kept")
    topic_partition = TopicPartition("t", int(vanished.name[2:]))

    def lacks() -> str:
        with broker_on(*two) as broker:
            return server_of(broker).log_manager.logs[topic_partition].lacks

    for _ in range(2):
        assert lacks() == f"{vanished} was missing at a start (offsets 0 to 0)"
    told = [message for message in caplog.messages if "has lost its records up to offset 0:" in message]
    assert len(told) == 1, "the mark in the log tells it from then on"
    (anew,) = (path for each in two for path in each.glob(vanished.name))
    (anew / MARK).unlink()
    assert lacks() == ""
    shutil.rmtree(anew)
    (tmp_path / "kept").rename(vanished)
    assert lacks() == ""
    with broker_on(*two) as broker:
        assert broker.end_offsets("t") == [1] * PARTITIONS


def test_a_directory_that_is_there_is_not_lost(two: tuple[Path, Path]) -> None:
    first, second = two
    line = serve(f"{first},{second}", f"--lost-dir={directory_id(second)}").line
    assert f"it is there, at {second}; start without the option" in line


def test_a_lost_directory_is_named_by_its_id(two: tuple[Path, Path]) -> None:
    first, second = two
    assert f"--lost-dir {second}: must be a directory.id" in serve(first, "--lost-dir", str(second)).line


def test_a_broker_keeps_out_of_a_directory_in_use_before_it_looks_for_others(two: tuple[Path, Path]) -> None:
    with broker_on(*two), pytest.raises(UsageError, match="in use by another broker"):
        broker_on(*two).start()


# --- a registry of several brokers -----------------------------------------------------------------------------------


def test_a_shared_registry_is_founded_by_the_first_broker(tmp_path: Path) -> None:
    registry = tmp_path / "registry.db"
    settings = {"registry.file": str(registry)}
    with Broker(data_dir=tmp_path / "1", settings=settings) as broker:
        broker.create_topic("t")
        broker.produce("t", b"kept")
        assert registry.exists()
        assert not (tmp_path / "1" / "registry.db").exists()
        broker.restart()
        assert broker.end_offsets("t") == [1]


def test_a_node_id_in_use_is_not_written_into_a_new_directory(tmp_path: Path) -> None:
    settings = {"registry.file": str(tmp_path / "registry.db")}
    with Broker(data_dir=tmp_path / "1", settings=settings):
        with pytest.raises(UsageError, match=r"node\.id 1 is in use by another running broker.*another node\.id"):
            Broker(data_dir=tmp_path / "2", settings=settings).start()
        with Broker(data_dir=tmp_path / "2", settings={**settings, "node.id": 2}) as broker:
            assert broker.image.brokers.keys() == {1, 2}


def test_a_shared_registry_that_is_gone_is_not_founded_again(tmp_path: Path) -> None:
    registry = tmp_path / "registry.db"
    with Broker(data_dir=tmp_path / "1", settings={"registry.file": str(registry)}):
        pass
    with closing(sqlite3.connect(registry)) as db:  # else it would still have a log of its own
        db.execute("PRAGMA journal_mode=DELETE")
    registry.rename(tmp_path / "unmounted.db")
    for content in (None, b""):
        if content is not None:
            registry.write_bytes(content)
        with pytest.raises(UsageError, match=f"registry.file: {registry} is not there or empty, but brokers have used"):
            Broker(data_dir=tmp_path / "1", settings={"registry.file": str(registry)}).start()
    (tmp_path / "unmounted.db").rename(registry)
    with Broker(data_dir=tmp_path / "1", settings={"registry.file": str(registry)}) as broker:
        assert broker.topics() == []


def test_a_broker_with_a_copy_of_the_metadata_founds_no_registry(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path):
        pass
    (tmp_path / "registry.db").rename(tmp_path / "unmounted.db")
    with pytest.raises(UsageError, match=f"log.dirs: {tmp_path} belongs to a broker whose registry is missing"):
        Broker(data_dir=tmp_path).start()
    (tmp_path / METADATA_COPY).unlink()
    with Broker(data_dir=tmp_path) as broker:
        assert broker.topics() == [], "without one it finds all in its logs"


@pytest.mark.parametrize("content", [b"", None], ids=["no bytes", "a database without tables"])
@pytest.mark.parametrize("has_copy", [True, False])
def test_an_emptied_registry_is_not_founded_again(tmp_path: Path, has_copy: bool, content: bytes | None) -> None:
    with Broker(data_dir=tmp_path):
        pass
    for path in tmp_path.glob("registry.db*"):
        path.unlink()
    if content is not None:
        (tmp_path / "registry.db").write_bytes(content)
    else:
        with closing(sqlite3.connect(tmp_path / "registry.db")) as db:
            db.execute("VACUUM")
        content = (tmp_path / "registry.db").read_bytes()
        assert content
    if not has_copy:
        (tmp_path / METADATA_COPY).unlink()
    with pytest.raises(UsageError, match=r"barnabas cluster recover|had the registry of this broker"):
        Broker(data_dir=tmp_path).start()
    assert (tmp_path / "registry.db").read_bytes() == content
    if not has_copy:
        (tmp_path / "registry.db").unlink()
        with Broker(data_dir=tmp_path) as broker:
            assert broker.topics() == []


def test_a_broker_of_a_cluster_is_known_by_those_that_joined_it(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path), Broker(data_dir=tmp_path / "brokers" / "broker-2"):
        pass
    (tmp_path / "registry.db").unlink()
    with pytest.raises(UsageError, match=f"log.dirs: {tmp_path} belongs to a broker whose registry is missing"):
        Broker(data_dir=tmp_path).start()


@pytest.mark.parametrize("lost", [False, True], ids=["with the registry", "without the registry"])
def test_a_broker_founds_none_beside_the_brokers_of_a_whole_cluster(tmp_path: Path, lost: bool) -> None:
    registry, directories = tmp_path / "registry.db", [tmp_path / f"broker-{number}" for number in (2, 10)]
    settings = {"registry.file": str(registry)}
    for node_id, directory in enumerate(directories, start=1):
        with Broker(data_dir=directory, settings={**settings, "node.id": node_id}):
            pass
    if lost:
        registry.unlink()
    start = f"start all of it by `barnabas serve --brokers 10 --data-dir {tmp_path}`"
    recover = f"barnabas cluster recover --registry {registry} --data-dir {directories[0]} --data-dir {directories[1]}"
    code, line = serve(tmp_path)
    assert (code, line.startswith(f"log.dirs: {directories[0]} belongs to a broker of a cluster of")) == (2, True), line
    assert line.endswith(start)
    assert (f"`{recover}`" in line, registry.exists()) == (lost, not lost)
    assert not (tmp_path / "meta.properties").exists()


def test_a_broker_alone_may_have_others_below_its_directory(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        broker.create_topic("broker", partitions=2)
        settings = {"registry.file": str(tmp_path / "registry.db"), "node.id": 2}
        with Broker(data_dir=tmp_path / "broker-2", settings=settings):
            pass
    with Broker(data_dir=tmp_path) as broker:
        assert broker.topics() == ["broker"]


def test_the_directory_of_a_shared_registry_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"registry.file: the directory of .*missing/registry.db does not exist"):
        Broker(data_dir=tmp_path / "1", settings={"registry.file": str(tmp_path / "missing" / "registry.db")}).start()
    assert not (tmp_path / "missing").exists()
