"""The table of docs/cluster.md of what becomes of a start: each cell, with real directories that something happens to.

The page is read here: a row that is added there needs what happens to it in HAPPENED, and no more.
"""

import re
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple
from uuid import uuid4

import pytest
from _pytest.mark import ParameterSet

import barnabas
from barnabas.broker.cluster.metadata_copy import write_copy
from barnabas.broker.startup.recovery import recover_registry
from barnabas.errors import NotYet, UsageError
from barnabas.log.directories.checkpoints import format_topic_id, parse_topic_id, read_properties
from barnabas.metadata.image import MetadataImage
from barnabas.registry.content import RegistryContent
from barnabas.registry.embedded import EmbeddedRegistry
from barnabas.testing import Broker, Cluster
from broker.wire import server_of
from code_blocks import ROOT
from zookeeper_server import ZooKeeperServer, another_program, running_server

RECORDS: Final = 5
ANOTHER_IMAGE: Final = MetadataImage("AAAAAAAAAAAAAAAAAAAAyw", version=1_000_000, controller_epoch=1_000)
TABLE: Final = re.compile(r"^\| what \| happened to it .*\n\|[-|]+\n((?:\|.*\n)+)", re.MULTILINE)


class Row(NamedTuple):
    what: str
    happened: str
    alone: str
    one: str
    all: str


def rows() -> list[Row]:
    page = (ROOT / "docs" / "cluster.md").read_text()
    found = TABLE.search(page)
    assert found is not None
    return [Row(*(cell.strip() for cell in line.strip("|").split("|"))) for line in found[1].splitlines()]


ROWS: Final = rows()
BELIEVED_BY_REGISTRY: Final = {"data directory", "directory id", "barnabas-registration", "log"}
"""The artefacts that are compared with what the registry knows. With ZooKeeper the others are slow together."""


class Place(NamedTuple):
    """A data directory that something happens to, its copy of a start before, another data directory, the directory
    with the registry, and that with its copy of a start before."""

    directory: Path
    old: Path
    other: Path
    registry: Path
    old_registry: Path


# --- what happens ----------------------------------------------------------------------------------------------------


def vanish(place: Place) -> None:
    shutil.rmtree(place.directory)
    place.directory.mkdir()


def put_back(place: Place) -> None:
    shutil.rmtree(place.directory)
    shutil.copytree(place.old, place.directory)


def replace_by_anothers(place: Place) -> None:
    shutil.rmtree(place.directory)
    shutil.copytree(place.other, place.directory, ignore=shutil.ignore_patterns("registry.db*"))


def remove(*patterns: str) -> Callable[[Place], None]:
    def happen(place: Place) -> None:
        found = [path for pattern in patterns for path in place.directory.glob(pattern)]
        assert found, patterns
        for path in found:
            path.unlink()

    return happen


def logs_in(directory: Path) -> list[Path]:
    found = list(directory.glob("t-[0-9]"))
    assert found
    return found


def remove_log(place: Place) -> None:
    for path in logs_in(place.directory):
        shutil.rmtree(path)


def put_log_back(place: Place) -> None:
    for path in logs_in(place.directory):
        put_back(place._replace(directory=path, old=place.old / path.name))


def leave_moved_log(place: Place) -> None:
    """The logs of this directory were moved to it, and what they were before is left: in the other directory of this
    broker, else beside them."""
    here, there = (read_properties(f"{each}/meta.properties") for each in (place.directory, place.other))
    home = place.other if there["node.id"] == here["node.id"] else place.directory
    for path in logs_in(place.directory):
        moved_to = parse_topic_id(here["directory.id"]).hex
        shutil.copytree(place.old / path.name, home / f"{path.name}.{moved_to}-stray")
        (path / "barnabas-moved-from").write_text(there["directory.id"])


def leave_moved_log_alone(place: Place) -> None:
    leave_moved_log(place)
    remove_log(place)


def damage_origin(place: Place) -> None:
    leave_moved_log(place)
    for path in place.directory.glob("t-[0-9]/barnabas-moved-from"):
        path.write_bytes(b"\xa5" * 22)


def mark(content: bytes) -> Callable[[Place], None]:
    def happen(place: Place) -> None:
        for path in logs_in(place.directory):
            (path / "barnabas-damaged").write_bytes(content)

    return happen


def overwrite(*patterns: str) -> Callable[[Place], None]:
    def happen(place: Place) -> None:
        found = [path for pattern in patterns for path in place.directory.glob(pattern)]
        assert found, patterns
        for path in found:
            path.write_bytes(b"\0" * path.stat().st_size)

    return happen


def put_files_back(*patterns: str) -> Callable[[Place], None]:
    def happen(place: Place) -> None:
        found = [path for pattern in patterns for path in place.old.glob(pattern)]
        assert found, patterns
        for path in found:
            shutil.copy(path, place.directory / path.relative_to(place.old))

    return happen


def change_segments(change: Callable[[bytes], bytes]) -> Callable[[Place], None]:
    def happen(place: Place) -> None:
        found = list(place.directory.glob("t-[0-9]/*.log"))
        assert found
        for path in found:
            path.write_bytes(change(path.read_bytes()))

    return happen


def damaged(segment: bytes) -> bytes:
    """Its last record is another one, which the checksum does not fit."""
    return segment[:-3] + bytes(255 - byte for byte in segment[-3:])


def put_old_logs_elsewhere(place: Place) -> None:
    for path in place.old.glob("t-[0-9]"):
        shutil.copytree(path, place.other / path.name)


def edit_properties(pattern: str, replacement: str) -> Callable[[Place], None]:
    def happen(place: Place) -> None:
        path = place.directory / "meta.properties"
        path.write_text(re.sub(pattern, replacement, path.read_text()))

    return happen


def change_directory_id(place: Place) -> None:
    edit_properties("directory.id=.*", f"directory.id={format_topic_id(uuid4())}")(place)


def lose_registry(place: Place) -> None:
    for path in place.registry.glob("registry.db*"):
        path.unlink()


def change_registry(content: Callable[[bytes], bytes]) -> Callable[[Place], None]:
    def happen(place: Place) -> None:
        path = place.registry / "registry.db"
        data = path.read_bytes()
        lose_registry(place)
        path.write_bytes(content(data))

    return happen


def replace_registry_by_anothers(place: Place) -> None:
    lose_registry(place)
    EmbeddedRegistry(place.registry / "registry.db", founding=RegistryContent(ANOTHER_IMAGE)).close()


def replace_metadata_by_anothers(place: Place) -> None:
    write_copy(str(place.directory / "cluster-metadata-copy"), ANOTHER_IMAGE)


def put_registry_back(place: Place) -> None:
    lose_registry(place)
    for path in place.old_registry.glob("registry.db*"):
        shutil.copy(path, place.registry)


def put_both_back(place: Place) -> None:
    put_back(place)
    put_registry_back(place)


def recover_registry_and_vanish(place: Place) -> None:
    lose_registry(place)
    found = sorted(each.parent for each in place.directory.parent.glob("*/meta.properties"))
    named = [str(each) for each in found if each.suffix != ".kept"]
    assert recover_registry(place.registry / "registry.db", named).is_made
    vanish(place)


def forget_directories_and_vanish(place: Place) -> None:
    node_id = read_properties(str(place.directory / "meta.properties"))["node.id"]
    with closing(sqlite3.connect(place.registry / "registry.db", isolation_level=None)) as db:
        db.execute("DELETE FROM directories WHERE node_id = ?", (node_id,))
    vanish(place)


HAPPENED: Final[dict[tuple[str, str], Callable[[Place], None]]] = {
    ("data directory", "not mounted"): vanish,
    ("data directory", "mounted again"): vanish,
    ("data directory", "old copy"): put_back,
    ("data directory", "old copy, with the registry"): put_both_back,
    ("data directory", "of another cluster"): edit_properties("cluster.id=.*", "cluster.id=AAAAAAAAAAAAAAAAAAAAAA"),
    ("data directory", "copy of another one here"): replace_by_anothers,
    ("registry", "missing"): lose_registry,
    ("registry", "emptied"): change_registry(lambda _: b""),
    ("registry", "zeroed"): change_registry(lambda data: bytes(len(data))),
    ("registry", "damaged"): change_registry(lambda data: b"\xa5" * len(data)),
    ("registry", "old copy"): put_registry_back,
    ("registry", "of another cluster"): replace_registry_by_anothers,
    ("registry", "recovered, and a directory not mounted"): recover_registry_and_vanish,
    ("registry", "has forgotten the directories, of which one is not mounted"): forget_directories_and_vanish,
    ("meta.properties", "missing"): remove("meta.properties"),
    ("meta.properties", "damaged"): overwrite("meta.properties"),
    ("directory id", "missing"): edit_properties("directory.id=.*\n", ""),
    ("directory id", "damaged"): edit_properties("directory.id=.*", "directory.id=?"),
    ("directory id", "another one"): change_directory_id,
    ("barnabas-registration", "missing"): remove("barnabas-registration"),
    ("barnabas-registration", "damaged"): overwrite("barnabas-registration"),
    ("log", "missing"): remove_log,
    ("log", "old copy"): put_log_back,
    ("log", "old copy in another data directory"): put_old_logs_elsewhere,
    ("log of a finished move", "left behind"): leave_moved_log,
    ("log of a finished move", "left behind, and the new one missing"): leave_moved_log_alone,
    ("barnabas-moved-from", "damaged"): damage_origin,
    ("segment", "missing"): remove("t-[0-9]/*.log"),
    ("segment", "cut short"): change_segments(lambda segment: segment[: len(segment) // 2]),
    ("segment", "damaged"): change_segments(damaged),
    ("segment", "old copy"): put_files_back("t-[0-9]/*.log"),
    ("barnabas-damaged", "on a log that is whole"): mark(b"t-0 is damaged: a byte\n"),
    ("barnabas-damaged", "damaged"): mark(b"\xa5" * 20),
    ("copy of the metadata", "missing"): remove("cluster-metadata-copy"),
    ("copy of the metadata", "damaged"): overwrite("cluster-metadata-copy"),
    ("copy of the metadata", "old copy"): put_files_back("cluster-metadata-copy"),
    ("copy of the metadata", "of another cluster"): replace_metadata_by_anothers,
    ("clean-shutdown mark", "missing"): remove(".kafka_cleanshutdown"),
    ("clean-shutdown mark", "damaged"): overwrite(".kafka_cleanshutdown"),
    ("clean-shutdown mark", "old copy"): put_files_back(".kafka_cleanshutdown"),
    ("checkpoints", "missing"): remove("*-checkpoint", "t-[0-9]/*-checkpoint"),
    ("checkpoints", "damaged"): overwrite("*-checkpoint", "t-[0-9]/*-checkpoint"),
    ("checkpoints", "old copy"): put_files_back("*-checkpoint", "t-[0-9]/*-checkpoint"),
    ("producer snapshots", "missing"): remove("t-[0-9]/*.snapshot"),
    ("producer snapshots", "damaged"): overwrite("t-[0-9]/*.snapshot"),
    ("producer snapshots", "old copy"): put_files_back("t-[0-9]/*.snapshot"),
}


def test_each_row_has_what_happens_to_it() -> None:
    assert [(row.what, row.happened) for row in ROWS] == list(HAPPENED)


def text_of(cell: str, outcome: str) -> str:
    """Returns what is said where this is the outcome of a start; '' if it is not."""
    found, _, text = cell.partition(": ")
    return text.strip("`") if found == outcome else ""


is_refused = partial(text_of, outcome="refused")


def refuses(start: Callable[[], object], way_out: str) -> None:
    with pytest.raises(UsageError) as refused:
        start()
    assert way_out in f"{refused.value} {refused.value.__context__}"  # the test kit has its own words for --lost-dir


def produce(kafka: Broker | Cluster, *partitions: int) -> None:
    with barnabas.Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        sent = [producer.send("t", b"value", partition=number) for number in partitions or (0,) for _ in range(RECORDS)]
        for each in sent:
            each.result(60)


# --- one broker ------------------------------------------------------------------------------------------------------


def ends_and_epochs(broker: Broker) -> list[tuple[int, int]]:
    with broker:
        partitions = server_of(broker).image.topics["t"].partitions
        return sorted(zip(broker.end_offsets("t"), (each.leader_epoch for each in partitions), strict=True))


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeperServer]:
    with TemporaryDirectory() as directory:
        yield from running_server(Path(directory))


def with_stores(cases: Iterable[tuple[Row, *tuple[str, ...]]], suffix: str = "") -> list[ParameterSet]:
    """Returns each case with a file, and with ZooKeeper if it is not about the file."""
    found = []
    for case in cases:
        row, name = case[0], "-".join((f"{case[0].what}-{case[0].happened}", *case[1:2]))
        found.append(pytest.param(f"file{suffix}", *case, id=f"file-{name}"))
        if row.what != "registry" and "registry" not in row.happened:
            marks = () if row.what in BELIEVED_BY_REGISTRY else pytest.mark.slow
            found.append(pytest.param(f"zookeeper{suffix}", *case, id=f"zookeeper-{name}", marks=marks))
    return found


@pytest.mark.parametrize(("store", "row"), with_stores([(row,) for row in ROWS if row.alone]))
def test_a_broker_alone(
    request: pytest.FixtureRequest, store: str, row: Row, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    settings = {}
    if store == "zookeeper":
        zookeeper: ZooKeeperServer = request.getfixturevalue(store)
        settings["zookeeper.connect"] = zookeeper.new_path()
    broker = Broker(data_dir=f"{first},{second}", settings=settings)
    for number in range(2):
        with broker:
            if number == 0:
                broker.create_topic("t", partitions=2)
            produce(broker, 0, 1)
        shutil.copytree(tmp_path, tmp_path.with_name(f"{tmp_path.name}.{number}"))
    old, whole = (tmp_path.with_name(f"{tmp_path.name}.{number}") for number in range(2))
    HAPPENED[row.what, row.happened](Place(second, old / "second", first, first, old / "first"))
    expected = [2 * RECORDS] * 2
    if row.happened == "old copy, with the registry":
        put_back(Place(first, old / "first", second, first, old / "first"))
        expected = [RECORDS] * 2
    way_out = "--lost-dir" if row.happened == "mounted again" else is_refused(row.alone)
    if way_out:
        refuses(broker.start, way_out)
        for directory in (first, second):
            put_back(Place(directory, whole / directory.name, directory, first, first))
    found, epochs = zip(*ends_and_epochs(broker), strict=True)
    if told := text_of(row.alone, "lost, and told"):
        assert told in caplog.text
        assert found[0] < found[1] == 2 * RECORDS
        assert epochs[0] > epochs[1], "clients that have had the records hear of a new leader epoch"
    else:
        assert list(found) == expected


# --- three brokers ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def file_cluster() -> Iterator[Cluster]:
    with Cluster(3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def zookeeper_path(zookeeper: ZooKeeperServer) -> str:
    return zookeeper.new_path()


@pytest.fixture(scope="module")
def zookeeper_cluster(zookeeper_path: str) -> Iterator[Cluster]:
    with Cluster(3, settings={"zookeeper.connect": zookeeper_path}) as cluster:
        yield cluster


def end_all(cluster: Cluster, *, in_order: bool) -> None:
    if in_order:
        for node_id in (2, 3, 1):
            cluster.stop(node_id)
        return
    controller = cluster.controller
    for node_id in cluster.node_ids:
        cluster.pause(node_id)  # nobody notices how the others end
    for node_id in sorted(cluster.node_ids, key=lambda node_id: node_id != controller):
        cluster.kill(node_id)


def start_all(cluster: Cluster, node_ids: Iterable[int] = (1, 2, 3)) -> None:
    for node_id in node_ids:
        cluster.start(node_id)
    cluster.wait_in_sync()


def directory_of(cluster: Cluster, node_id: int) -> Path:
    return cluster.data_dir / f"broker-{node_id}"


def kept(path: Path) -> Path:
    return path.with_name(f"{path.name}.kept")


ENDED_IN_ORDER: Final = {"clean-shutdown mark", "checkpoints", "producer snapshots", "copy of the metadata"}
"""What is only there after an orderly stop."""
KNOWN_BY_CHECKPOINTS: Final = {
    *((what, "old copy") for what in ("log", "segment")),
    *(("segment", happened) for happened in ("missing", "cut short")),
}
"""What only the checkpoints tell: a write that a kill has cut off looks the same."""
CASES: Final = [(row, who, cell) for row in ROWS for who, cell in (("one", row.one), ("all", row.all)) if cell]


@pytest.mark.parametrize(("store", "row", "who", "cell"), with_stores(CASES, "_cluster"))
def test_three_brokers(
    request: pytest.FixtureRequest, tmp_path: Path, store: str, row: Row, who: str, cell: str
) -> None:
    cluster: Cluster = request.getfixturevalue(store)
    cluster.reset()
    cluster.create_topic("t", assignments={0: [1, 2, 3]})
    produce(cluster)
    expected = RECORDS
    if row.happened.startswith("old copy") or row.what.startswith("log") or row.what == "barnabas-moved-from":
        # the checkpoints have to know it
        end_all(cluster, in_order=True)
        shutil.copytree(cluster.data_dir, tmp_path / "old")
        start_all(cluster)
        produce(cluster)
        expected = RECORDS if row.happened.endswith("with the registry") and who == "all" else 2 * RECORDS
    in_order = row.what in ENDED_IN_ORDER or row.happened.startswith("recovered")
    in_order |= (row.what, row.happened) in KNOWN_BY_CHECKPOINTS
    end_all(cluster, in_order=in_order)
    damaged = [1] if who == "one" else [1, 2, 3]
    way_out = is_refused(cell)
    returns = bool(way_out) or row.happened == "mounted again"
    registry = {path: path.read_bytes() for path in cluster.data_dir.glob("registry.db*")}
    for node_id in damaged:
        path = directory_of(cluster, node_id)
        if returns and row.what == "segment":  # a copy of the whole directory is verified as after a loss of power
            shutil.copytree(path, kept(path))
        elif returns:
            path.rename(kept(path))
            shutil.copytree(kept(path), path)
        other = directory_of(cluster, node_id % 3 + 1)
        HAPPENED[row.what, row.happened](
            Place(path, tmp_path / "old" / path.name, other, cluster.data_dir, tmp_path / "old")
        )
    if returns and (way_out or who == "all"):
        if row.happened == "old copy, with the registry":
            refused = [2, 3]  # it is the others who know
        else:
            refused = [1, 3] if in_order and who == "all" else damaged  # the one that was stopped first never leads
        for node_id in refused:
            refuses(partial(cluster.start, node_id), way_out or "--lost-dir")
    elif returns:  # the disk is away for a start in which the others go on
        start_all(cluster, (2, 3, 1))
        produce(cluster)
        expected += RECORDS
        end_all(cluster, in_order=False)
    if returns:
        for node_id in damaged:
            path = directory_of(cluster, node_id)
            if row.what == "segment":
                put_back(Place(path / "t-0", kept(path) / "t-0", path, path, path))
                shutil.rmtree(kept(path))
            else:
                shutil.rmtree(path)
                kept(path).rename(path)
    if way_out and (row.what == "registry" or row.happened.endswith("with the registry")):
        lose_registry(Place(tmp_path, tmp_path, tmp_path, cluster.data_dir, tmp_path))
        for path, content in registry.items():
            path.write_bytes(content)
    if cell == "copied":
        with suppress(NotYet):  # the others are not there
            cluster.start(1)
            pytest.fail("nobody was there to confirm that")
    start_all(cluster, (2, 3, 1) if cell == "copied" else (1, 2, 3))
    assert len(cluster.records("t")) == expected
    assert len({tuple(batches) for batches in cluster.logs("t").values()}) == 1
    for path in cluster.data_dir.glob("broker-*/*-stray"):  # no log is copied anew beside what was kept of another one
        shutil.rmtree(path)


def test_a_broker_whose_directories_were_deleted_in_zookeeper_is_not_taken_for_a_new_one(
    zookeeper_cluster: Cluster, zookeeper_path: str
) -> None:
    cluster = zookeeper_cluster
    cluster.reset()
    cluster.create_topic("t", assignments={0: [1, 2, 3]})
    produce(cluster)
    end_all(cluster, in_order=False)
    with another_program(zookeeper_path) as tree:
        tree.delete("/barnabas/directories/1")
    path = directory_of(cluster, 1)
    path.rename(kept(path))
    path.mkdir()
    refuses(partial(cluster.start, 1), "--lost-dir")
    path.rmdir()
    kept(path).rename(path)
    start_all(cluster)
    assert len(cluster.records("t")) == RECORDS


def test_where_dead_brokers_look_alive_one_keeps_its_replica(zookeeper: ZooKeeperServer) -> None:
    """ZooKeeper ends sessions later: the first brokers that start without their disks take those of the others for
    alive, and the last one for what they are."""
    settings = {"zookeeper.connect": zookeeper.new_path(), "zookeeper.session.timeout.ms": 4000}
    with Cluster(3, processes=True, several_machines=True, log_dirs=2, settings=settings) as cluster:
        cluster.create_topic("t", assignments={0: [1, 2, 3], 1: [1, 2, 3]})
        produce(cluster, 0, 1)
        end_all(cluster, in_order=False)
        refused = []
        away = {node_id: next(directory_of(cluster, node_id).glob("log-*/t-0")).parent for node_id in cluster.node_ids}
        for node_id, path in away.items():
            path.rename(kept(path))
            try:
                cluster.broker(node_id).start()
            except UsageError:  # NotYet, or in the end of those that have seen the others' sessions end
                refused.append(node_id)
        assert refused, "nobody is left who has the records"
        for node_id, path in away.items():
            if node_id not in refused:
                cluster.kill(node_id)
            shutil.rmtree(path, ignore_errors=True)
            kept(path).rename(path)
        waiting = list(cluster.node_ids)

        def all_run() -> bool:
            for node_id in tuple(waiting):
                with suppress(NotYet):  # to be started again, as by a service manager
                    cluster.broker(node_id).start()
                    waiting.remove(node_id)
            return not waiting

        cluster.wait_for(all_run, what="all brokers")
        cluster.wait_in_sync()
        assert len(cluster.records("t")) == 2 * RECORDS
