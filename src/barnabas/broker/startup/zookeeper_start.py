"""Opens the registry in ZooKeeper for a broker that starts, and takes a node id from it where none is set."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from barnabas.config.broker import BrokerConfig
from barnabas.errors import UsageError
from barnabas.log.directories.checkpoints import META_PROPERTIES, node_id_of, read_properties
from barnabas.log.directories.data_directory import DataDirectory

if TYPE_CHECKING:
    import ssl

    from barnabas.registry.migration import RegistryStore
    from barnabas.registry.zookeeper.session import ZooKeeperAccess
    from barnabas.registry.zookeeper.zookeeper_registry import ZooKeeperRegistry

__all__ = ["check_access", "open_zookeeper", "open_zookeeper_store", "with_node_id"]


def open_zookeeper(
    config: BrokerConfig, directories: Sequence[DataDirectory], boot: str | None = None
) -> "ZooKeeperRegistry":
    """Opens the registry at `zookeeper.connect`, and founds a cluster there if there is none and this broker has never
    been used. ZooKeeperRegistry explains `boot`. Raises UsageError, RegistryUnreachable."""
    return _open(config, next((directory.path for directory in directories if directory.used), None), boot)


def open_zookeeper_store(config: BrokerConfig) -> "RegistryStore":
    """Opens what is at `zookeeper.connect` as a whole, for its move. Raises UsageError, RegistryUnreachable."""
    with _with_kazoo():
        from barnabas.registry.zookeeper.zookeeper_store import ZooKeeperStore
    return ZooKeeperStore(_access(config))


def _open(config: BrokerConfig, used: str | None, boot: str | None = None) -> "ZooKeeperRegistry":
    with _with_kazoo():
        from barnabas.registry.zookeeper.zookeeper_registry import ZooKeeperRegistry
    return ZooKeeperRegistry(_access(config), used_directory=used, boot=boot)


def check_access(config: BrokerConfig) -> None:
    """Raises UsageError for settings with which no start could connect to ZooKeeper."""
    with _with_kazoo():
        from barnabas.registry.zookeeper.session import parse_connect
    parse_connect(_access(config).connect)


@contextmanager
def _with_kazoo() -> Iterator[None]:
    """Raises UsageError if kazoo is not there to be imported."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "kazoo":
            raise
        raise UsageError("zookeeper.connect: needs kazoo: pip install 'barnabas[zookeeper]'") from None


def _access(config: BrokerConfig) -> "ZooKeeperAccess":
    from barnabas.registry.zookeeper.session import ZooKeeperAccess

    assert config.zookeeper_connect is not None
    return ZooKeeperAccess(
        config.zookeeper_connect,
        config.zookeeper_session_timeout_ms / 1000,
        config.zookeeper_connection_max_s,
        config.zookeeper_digest,
        config.zookeeper_set_acl,
        _tls_context(config) if config.zookeeper_ssl_client_enable else None,
    )


def _tls_context(config: BrokerConfig) -> "ssl.SSLContext":
    import ssl

    trusted, own = config.zookeeper_ssl_truststore_location, config.zookeeper_ssl_keystore_location
    name = f"zookeeper.ssl.truststore.location={trusted}"
    try:
        context = ssl.create_default_context(cafile=trusted)
        name = f"zookeeper.ssl.keystore.location={own}"
        if own is not None:
            # Without a password, OpenSSL would ask the terminal for that of an encrypted key.
            context.load_cert_chain(own, password=config.zookeeper_ssl_keystore_password or "")
    except (OSError, ValueError) as error:
        raise UsageError(f"{name} cannot be loaded: {error}; it has to be a PEM file, and no Java keystore") from None
    context.check_hostname = config.zookeeper_ssl_endpoint_identification_algorithm != ""
    return context


def with_node_id(config: BrokerConfig) -> BrokerConfig:
    """Returns the settings with the node id that the data directories have recorded, or one from ZooKeeper that no
    broker has had, where none is set and the brokers of the cluster share ZooKeeper. Raises UsageError,
    RegistryUnreachable."""
    if config.zookeeper_connect is None or "node.id" in config.static or not config.broker_id_generation_enable:
        return config
    recorded = {node_id_of(read_properties(f"{directory}/{META_PROPERTIES}")) for directory in config.data_dirs}
    known = next((text for text in sorted(recorded) if text.isdecimal()), None)
    if known is None:
        registry = _open(config, None)
        try:
            known = str(_free_node_id(registry, config.reserved_broker_max_id))
        finally:
            registry.close()
    return BrokerConfig({**config.static, "node.id": known})


def _free_node_id(registry: "ZooKeeperRegistry", reserved_max: int) -> int:
    """Draws node ids until one is not that of a broker that was given it by hand."""
    while registry.directories(node_id := reserved_max + registry.next_node_id()):
        pass
    return node_id
