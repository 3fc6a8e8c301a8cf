"""The settings of a broker's connection to ZooKeeper: TLS with a real server."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest

from barnabas.broker.startup.zookeeper_start import open_zookeeper, open_zookeeper_store, with_node_id
from barnabas.config.broker import BrokerConfig
from barnabas.errors import UsageError
from barnabas.metadata.image import PartitionImage
from barnabas.registry.embedded import EmbeddedRegistry
from barnabas.registry.embedded_store import EmbeddedStore
from barnabas.registry.migration import move_registry
from barnabas.registry.registry import BrokerRegistration, CreateTopic
from barnabas.testing import Broker
from certificates import make_certificate
from stopwatch import Stopwatch
from zookeeper_server import ZooKeeperServer, running_server

pytest.importorskip("kazoo", reason="the registry over ZooKeeper needs kazoo")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def pem(folder: Path) -> Path:
    return make_certificate(folder, "zookeeper")


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, pem: Path) -> Iterator[ZooKeeperServer]:
    yield from running_server(tmp_path_factory.mktemp("zookeeper"), pem=pem)


@pytest.fixture
def settings(secure: ZooKeeperServer, pem: Path) -> dict[str, str]:
    return {
        "zookeeper.connect": secure.new_secure_path(),
        "zookeeper.connection.timeout.ms": "20000",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(pem),
        "zookeeper.ssl.keystore.location": str(pem),
    }


def config_of(settings: dict[str, str]) -> BrokerConfig:
    return BrokerConfig({"node.id": "1", "log.dirs": "/nowhere", **settings})


def test_a_broker_with_its_registry_behind_tls(settings: dict[str, str], tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, settings=settings) as broker:
        broker.create_topic("t", 3)
        broker.restart()
        assert broker.topics() == ["t"]


def test_a_registry_moves_behind_tls(settings: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    EmbeddedRegistry(path).close()
    with closing(EmbeddedStore(path)) as source, closing(open_zookeeper_store(config_of(settings))) as target:
        moved = move_registry(source, target)
    assert not moved.differences
    with closing(open_zookeeper(config_of(settings), [])) as registry:
        assert registry.load().image.cluster_id == moved.content.image.cluster_id


def test_a_generated_node_id_is_none_that_was_given_by_hand(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    config = BrokerConfig.of({"zookeeper.connect": zookeeper.new_path(), "log.dirs": str(tmp_path)})
    with closing(open_zookeeper(config, [])) as registry:
        registry.register_broker(BrokerRegistration(1001, {UUID(int=1): "/elsewhere"}, ()))
    assert with_node_id(config).node_id == 1002


def test_many_answers_in_one_tls_record_are_read_at_once(settings: dict[str, str], stopwatch: Stopwatch) -> None:
    config = config_of(settings)
    one, two = open_zookeeper(config, []), open_zookeeper(config, [])
    assert one.register_broker(BrokerRegistration(1, {}, (), process="1")) is not None
    epoch = one.elect_controller()
    assert epoch is not None
    partitions = (PartitionImage(1, 0, (1,), (1,)),) * 3000
    assert one.write([CreateTopic("t", UUID(int=1), partitions, {})], controller_epoch=epoch)
    before = stopwatch()
    assert two.load().image.topics["t"].partitions == partitions
    assert stopwatch() - before < 5
    two.close()
    one.close()


def test_an_encrypted_key(settings: dict[str, str], folder: Path, secure: ZooKeeperServer) -> None:
    own = make_certificate(folder, "encrypted", password="secret")
    settings |= {"zookeeper.ssl.keystore.location": str(own), "zookeeper.ssl.keystore.password": "secret"}
    settings["zookeeper.connection.timeout.ms"] = "500"
    with pytest.raises(UsageError, match=r"or a zookeeper\.ssl\.keystore\.location that it trusts"):
        open_zookeeper(config_of(settings), [])
    with pytest.raises(UsageError, match=r"zookeeper\.ssl\.keystore\.location=.*cannot be loaded"):
        open_zookeeper(config_of({**settings, "zookeeper.ssl.keystore.password": "wrong"}), [])
    del settings["zookeeper.ssl.keystore.password"]
    with pytest.raises(UsageError, match=r"zookeeper\.ssl\.keystore\.location=.*cannot be loaded"):
        open_zookeeper(config_of(settings), [])


@pytest.mark.parametrize("name", ["truststore", "keystore"])
@pytest.mark.parametrize("content", [None, b"\xfe\xed\xfe\xed java", b""])
def test_files_that_are_no_pem(settings: dict[str, str], tmp_path: Path, name: str, content: bytes | None) -> None:
    path = tmp_path / "store"
    if content is not None:
        path.write_bytes(content)
    settings[f"zookeeper.ssl.{name}.location"] = str(path)
    with pytest.raises(UsageError, match=f"zookeeper.ssl.{name}.location=.*PEM file, and no Java keystore"):
        open_zookeeper(config_of(settings), [])


def test_another_authority_is_not_trusted(settings: dict[str, str], folder: Path) -> None:
    settings |= {"zookeeper.connection.timeout.ms": "8000"}
    settings["zookeeper.ssl.truststore.location"] = str(make_certificate(folder, "other"))
    with pytest.raises(UsageError, match=r"there is no TLS with .*CERTIFICATE_VERIFY_FAILED.*see zookeeper\.ssl"):
        open_zookeeper(config_of(settings), [])


def test_a_certificate_has_to_name_the_host(
    settings: dict[str, str], folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pem = make_certificate(folder, "elsewhere", host="10.0.0.1")
    settings |= {"zookeeper.ssl.truststore.location": str(pem), "zookeeper.ssl.keystore.location": str(pem)}
    server = running_server(tmp_path_factory.mktemp("elsewhere"), pem=pem)
    settings["zookeeper.connect"] = next(server).new_secure_path()
    try:
        with pytest.raises(UsageError, match="IP address mismatch"):
            open_zookeeper(config_of({**settings, "zookeeper.connection.timeout.ms": "8000"}), [])
        open_zookeeper(config_of({**settings, "zookeeper.ssl.endpoint.identification.algorithm": ""}), []).close()
    finally:
        server.close()


def test_a_port_without_tls(settings: dict[str, str], secure: ZooKeeperServer) -> None:
    settings |= {"zookeeper.connection.timeout.ms": "8000", "zookeeper.connect": secure.new_path()}
    with pytest.raises(UsageError, match=r"there is no TLS with .*see zookeeper\.ssl"):
        open_zookeeper(config_of(settings), [])
