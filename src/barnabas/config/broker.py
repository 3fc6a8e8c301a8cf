"""A broker's settings as a snapshot: typed attributes for the code, texts and sources for DescribeConfigs.

A snapshot never changes. A dynamic change makes a new one (`update_dynamic`), which replaces the old one between two
requests, so that no request sees half of a change.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NoReturn

from barnabas.config import kafka_names
from barnabas.config.advertise import AdvertiseRules
from barnabas.config.broker_settings import BROKER_CONFIGS, SYNONYMS, limited_listener, setting_of
from barnabas.config.connection_quotas import parse_overrides
from barnabas.config.definitions import (
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    DynamicMode,
    Setting,
    Value,
    nearest,
)
from barnabas.config.endpoints import (
    SASL_PLAINTEXT,
    WILDCARDS,
    Endpoint,
    endpoint_beside,
    entry_for_brokers,
    parse_endpoints,
    parse_protocol_map,
)
from barnabas.config.log_config import LogConfig
from barnabas.config.topic import describe_topic, known_overrides, log_config, topic_defaults, validate_topic_overrides
from barnabas.errors import InvalidConfig, InvalidRequest, UsageError
from barnabas.types import BrokerId

__all__ = ["BrokerConfig"]

_DEFAULTS: Final = BROKER_CONFIGS.defaults()
_ALL: Final = "*"
_ATTRIBUTES: Final = {setting.name: setting.attribute for setting in BROKER_CONFIGS}


class BrokerConfig:
    """A broker's settings. Every setting of `BROKER_CONFIGS` is an attribute, dots written as underscores; unset is
    None. Attributes that Kafka would call effective values are declared below the plain ones."""

    node_id: BrokerId
    broker_id: int
    broker_rack: str | None
    log_dir: tuple[str, ...]
    log_dirs: tuple[str, ...] | None
    cordoned_log_dirs: tuple[str, ...]
    log_dir_reserve_bytes: int
    registry_file: str | None
    zookeeper_connect: str | None
    zookeeper_session_timeout_ms: int
    zookeeper_connection_timeout_ms: int | None
    zookeeper_digest: str | None
    zookeeper_set_acl: bool
    zookeeper_ssl_client_enable: bool
    zookeeper_ssl_truststore_location: str | None
    zookeeper_ssl_keystore_location: str | None
    zookeeper_ssl_keystore_password: str | None
    zookeeper_ssl_endpoint_identification_algorithm: str
    broker_id_generation_enable: bool
    reserved_broker_max_id: int
    broker_heartbeat_interval_ms: int
    broker_session_timeout_ms: int
    controlled_shutdown_enable: bool
    log_dir_failure_timeout_ms: int
    durability: str
    listeners: tuple[str, ...]
    advertised_listeners: tuple[str, ...] | None
    advertise: tuple[str, ...]
    listener_security_protocol_map: str
    controller_listener_names: tuple[str, ...]
    inter_broker_listener_name: str | None
    socket_listen_backlog_size: int
    socket_send_buffer_bytes: int
    socket_receive_buffer_bytes: int
    socket_request_max_bytes: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: str
    request_timeout_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    max_connection_creation_rate: int
    connections_max_idle_ms: int
    queued_max_requests: int
    queued_max_request_bytes: int
    queued_max_response_bytes: int
    max_request_partition_size_limit: int
    fetch_max_bytes: int
    max_incremental_fetch_session_cache_slots: int
    num_partitions: int
    default_replication_factor: int
    auto_create_topics_enable: bool
    delete_topic_enable: bool
    auto_leader_rebalance_enable: bool
    leader_imbalance_check_interval_seconds: int
    replica_lag_time_max_ms: int
    replica_fetch_wait_max_ms: int
    replica_fetch_min_bytes: int
    replica_fetch_max_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_backoff_ms: int
    replica_socket_timeout_ms: int
    replica_socket_receive_buffer_bytes: int
    replica_selector_class: str
    replica_high_watermark_checkpoint_interval_ms: int
    leader_replication_throttled_rate: int
    follower_replication_throttled_rate: int
    replica_alter_log_dirs_io_max_bytes_per_second: int
    replication_quota_window_num: int
    replication_quota_window_size_seconds: int
    alter_log_dirs_replication_quota_window_num: int
    alter_log_dirs_replication_quota_window_size_seconds: int
    producer_id_expiration_ms: int
    producer_id_expiration_check_interval_ms: int
    log_retention_ms: int | None
    log_retention_minutes: int | None
    log_retention_hours: int
    log_retention_check_interval_ms: int
    log_roll_ms: int | None
    log_roll_hours: int
    log_roll_jitter_ms: int | None
    log_roll_jitter_hours: int
    log_flush_interval_ms: int | None
    log_flush_scheduler_interval_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    num_recovery_threads_per_data_dir: int
    log_cleaner_enable: bool
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_io_buffer_size: int
    log_cleaner_io_max_bytes_per_second: float
    log_initial_task_delay_ms: int
    log_cleanup_policy: tuple[str, ...]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    log_cleaner_delete_retention_ms: int
    log_segment_delete_delay_ms: int
    log_flush_interval_messages: int
    log_index_interval_bytes: int
    log_local_retention_bytes: int
    log_local_retention_ms: int
    log_cleaner_max_compaction_lag_ms: int
    max_decompressed_message_bytes: int
    message_max_bytes: int
    log_message_timestamp_after_max_ms: int
    log_message_timestamp_before_max_ms: int
    log_message_timestamp_type: str
    log_cleaner_min_cleanable_ratio: float
    log_cleaner_min_compaction_lag_ms: int
    min_insync_replicas: int
    log_preallocate: bool
    log_retention_bytes: int
    log_segment_bytes: int
    log_index_size_max_bytes: int
    unclean_leader_election_enable: bool
    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_initial_rebalance_delay_ms: int
    group_max_size: int
    offset_metadata_max_bytes: int
    offsets_commit_timeout_ms: int
    offsets_load_buffer_size: int
    offsets_retention_minutes: int
    offsets_retention_check_interval_ms: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    offsets_topic_compression_codec: int
    transaction_max_timeout_ms: int
    transactional_id_expiration_ms: int
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_two_phase_commit_enable: bool
    transaction_partition_verification_enable: bool
    add_partitions_to_txn_retry_backoff_max_ms: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_min_isr: int
    transaction_state_log_segment_bytes: int
    transaction_state_log_load_buffer_size: int

    data_dirs: tuple[str, ...]
    """`log.dirs`, or `log.dir` if that is not set."""
    endpoints: tuple[Endpoint, ...]
    """`listeners`, parsed, without Kafka's controller listeners and the listener for brokers."""
    inter_broker_endpoint: Endpoint
    """The endpoint for the cluster's other brokers. Port 0 stands for a free port."""
    advertised_inter_broker_endpoint: Endpoint | None
    """The entry of `advertised.listeners` for the cluster's other brokers, if there is one."""
    advertised_endpoints: tuple[Endpoint, ...]
    """The parsed `advertised.listeners`; empty if `advertise` decides."""
    max_connections_of_listeners: Mapping[str, int]
    """`listener.name.NAME.max.connections`, by listener."""
    cordoned_dirs: frozenset[str]
    """Those of `data_dirs` that get no new replicas."""
    topic_defaults: Mapping[str, Value]
    """The settings of a topic without overrides, by the topic settings' names."""
    default_log_config: LogConfig
    """The settings of a topic without overrides."""

    def __init__(
        self,
        static: Mapping[str, str] | None = None,
        dynamic_default: Mapping[str, str] | None = None,
        dynamic_broker: Mapping[str, str] | None = None,
    ) -> None:
        """`static`: given at the start; `dynamic_default`: set for all brokers; `dynamic_broker`: set for this one.
        Later ones win. Raises InvalidConfig for a bad value and UsageError for values that do not fit together. Unknown
        names are kept as texts; `sources.load` decides whether they are allowed.
        """
        attributes = self.__dict__
        attributes["static"] = _with_both_ids(dict(static or {}))
        attributes["dynamic_default"] = dict(dynamic_default or {})
        attributes["dynamic_broker"] = dict(dynamic_broker or {})
        values = dict(_DEFAULTS)
        for texts in (self.static, self.dynamic_default, self.dynamic_broker):
            values.update((name, BROKER_CONFIGS[name].parse(text)) for name, text in texts.items() if name in values)
        values["broker.id"] = values["node.id"]
        attributes["_values"] = values
        attributes.update((_ATTRIBUTES[name], value) for name, value in values.items())
        attributes["max_connections_of_listeners"] = _limits_of_listeners(
            {**self.static, **self.dynamic_default, **self.dynamic_broker}
        )
        attributes["data_dirs"] = self.log_dirs or self.log_dir
        attributes["cordoned_dirs"] = frozenset(
            self.data_dirs
            if _ALL in self.cordoned_log_dirs
            else set(self.cordoned_log_dirs).intersection(self.data_dirs)
        )
        attributes["topic_defaults"] = topic_defaults(values)
        attributes["default_log_config"] = log_config({}, self.topic_defaults)
        protocols = parse_protocol_map(self.listener_security_protocol_map)
        skipped = self.controller_listener_names
        inter_broker_name = (self.inter_broker_listener_name or "").strip().upper()
        if protocols.get(inter_broker_name) == SASL_PLAINTEXT:
            skipped = (*skipped, inter_broker_name)
        attributes["endpoints"] = parse_endpoints("listeners", self.listeners, protocols, skipped)
        attributes["inter_broker_endpoint"] = entry_for_brokers(
            "listeners", inter_broker_name, self.listeners, protocols
        ) or endpoint_beside(inter_broker_name, self.endpoints, one_machine=self.zookeeper_connect is None)
        advertised = self.advertised_listeners
        attributes["advertised_inter_broker_endpoint"] = entry_for_brokers(
            "advertised.listeners", inter_broker_name, advertised or (), protocols
        )
        attributes["advertised_endpoints"] = (
            parse_endpoints("advertised.listeners", advertised, protocols, skipped) if advertised else ()
        )
        self._check_together()

    static: Mapping[str, str]
    dynamic_default: Mapping[str, str]
    dynamic_broker: Mapping[str, str]
    _values: Mapping[str, Value]

    @classmethod
    def of(cls, settings: Mapping[str, object] | None = None) -> "BrokerConfig":
        """Makes a snapshot from Python values: `BrokerConfig.of({"num.partitions": 4})`. Raises UsageError for unknown
        names."""
        texts: dict[str, str] = {}
        for name, value in (settings or {}).items():
            if name not in BROKER_CONFIGS:
                raise UsageError(unknown_setting(name))
            items = value if isinstance(value, list | tuple) else (value,)
            texts[name] = ",".join(str(item).lower() if isinstance(item, bool) else str(item) for item in items)
        return cls(texts)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a BrokerConfig does not change; make a new one ({name})")

    @property
    def values(self) -> Mapping[str, Value]:
        """Returns the parsed values under Kafka's names."""
        return self._values

    @property
    def is_cordoned(self) -> bool:
        """Whether the broker takes no new replicas, because all its data directories are cordoned."""
        return self.cordoned_dirs.issuperset(self.data_dirs)

    @property
    def zookeeper_connection_max_s(self) -> float:
        """The time for which a start waits for ZooKeeper, in seconds."""
        return (self.zookeeper_connection_timeout_ms or self.zookeeper_session_timeout_ms) / 1000

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """Returns the settings of a topic's logs from its settings in the metadata."""
        if not overrides:
            return self.default_log_config
        return log_config(known_overrides(overrides), self.topic_defaults)

    # -- dynamic changes --------------------------------------------------------------------------------------------

    def update_dynamic(self, dynamic_default: Mapping[str, str], dynamic_broker: Mapping[str, str]) -> "BrokerConfig":
        """Returns a snapshot with these dynamic settings instead of the current ones.

        A value that this broker cannot apply (another version accepted it) is left out rather than refused: the change
        was acknowledged long ago, and the broker must be able to start.
        """
        default = {name: text for name, text in dynamic_default.items() if _applicable(name, text)}
        broker = {name: text for name, text in dynamic_broker.items() if _applicable(name, text)}
        return BrokerConfig(self.static, default, broker)

    def validate_dynamic(self, settings: Mapping[str, str], *, per_broker: bool) -> None:
        """Checks dynamic settings of this broker (or of all). Raises InvalidRequest with Kafka's message, or
        InvalidConfig for an unknown name."""
        for name in settings:
            if setting_of(name) is None and not kafka_names.without_effect(name):
                raise InvalidConfig(unknown_setting(name))
        fixed = [name for name in settings if not _is_dynamic(name)]
        if fixed:
            raise InvalidRequest(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
        of_one = [
            name
            for name in settings
            if name in BROKER_CONFIGS and BROKER_CONFIGS[name].dynamic is DynamicMode.PER_BROKER
        ]
        if of_one and not per_broker:
            raise InvalidRequest(f"Cannot update these configs at default cluster level: [{', '.join(of_one)}]")
        for name, reason in kafka_names.refusals(settings).items():
            raise InvalidRequest(f"{name}={settings[name]} is not accepted: {reason}")
        try:
            for name, text in settings.items():
                setting = setting_of(name)
                if setting is not None:
                    setting.parse(text)
            if per_broker:
                BrokerConfig(self.static, self.dynamic_default, settings)
            else:
                BrokerConfig(self.static, settings, self.dynamic_broker)
        except (InvalidConfig, UsageError) as error:
            raise InvalidRequest(str(error)) from None

    def check_own(self, settings: Mapping[str, str]) -> None:
        """Checks those dynamic settings of this broker that name its directories and listeners, which others do not
        know. Raises InvalidRequest."""
        try:
            directories = BROKER_CONFIGS["cordoned.log.dirs"].parse(settings.get("cordoned.log.dirs", ""))
            assert isinstance(directories, tuple)
            self.check_cordoned(directories)
        except UsageError as error:
            raise InvalidRequest(str(error)) from None
        for problem in self.limits_of_no_listener(settings):
            raise InvalidRequest(problem)

    def limits_of_no_listener(self, names: Iterable[str]) -> list[str]:
        """Returns what is wrong with each `listener.name.NAME.max.connections` of these names whose listener is not
        there."""
        listeners = {endpoint.name: None for endpoint in self.endpoints}
        told = f"listeners for clients are {', '.join(listeners)}"
        limited = [(name, listener) for name in names if (listener := limited_listener(name)) is not None]
        return [f"{name} is of no listener: {told}" for name, listener in limited if listener not in listeners]

    def check_cordoned(self, directories: Collection[str]) -> None:
        """Raises UsageError unless a value of cordoned.log.dirs suits the data directories of this broker."""
        if _ALL in directories and len(directories) > 1:
            raise UsageError(
                f"cordoned.log.dirs is {','.join(directories)}: {_ALL} is all directories, and stands alone"
            )
        foreign = [directory for directory in directories if directory not in (*self.data_dirs, _ALL)]
        if foreign:
            raise UsageError(
                f"cordoned.log.dirs: {', '.join(foreign)} is not in log.dirs of broker {self.node_id}, which is "
                f"{','.join(self.data_dirs)}"
            )

    # -- DescribeConfigs --------------------------------------------------------------------------------------------

    def describe(self, names: Iterable[str] | None = None) -> list[ConfigEntry]:
        """Returns every setting of this broker, every name of Kafka's brokers that has no effect here, and further ones
        if they are set. None means all names."""
        wanted = None if names is None else frozenset(names)
        entries = [self._entry(setting) for setting in BROKER_CONFIGS if wanted is None or setting.name in wanted]
        given = {**self.static, **self.dynamic_default, **self.dynamic_broker}
        entries.extend(
            self._foreign_entry(name)
            for name in sorted(given.keys() | kafka_names.PRESENT)
            if name not in BROKER_CONFIGS and (wanted is None or name in wanted)
        )
        return entries

    def describe_default(self, names: Iterable[str] | None = None) -> list[ConfigEntry]:
        """Returns the dynamic settings of all brokers, which DescribeConfigs of broker "" shows."""
        wanted = None if names is None else frozenset(names)
        entries = []
        for name in sorted(self.dynamic_default):
            if wanted is not None and name not in wanted:
                continue
            entry = self._entry(BROKER_CONFIGS[name]) if name in BROKER_CONFIGS else self._foreign_entry(name)
            text = None if entry.sensitive else self.dynamic_default[name]
            source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
            synonyms = tuple(synonym for synonym in entry.synonyms if synonym.source is source)
            entries.append(entry._replace(value=text, source=source, synonyms=synonyms))
        return entries

    def describe_topic(self, overrides: Mapping[str, str], names: Iterable[str] | None = None) -> list[ConfigEntry]:
        """Returns every setting of a topic with these overrides, with the sources of each value."""
        return describe_topic(overrides, self.topic_defaults, _SynonymsOf(self), names)

    def synonyms(self, setting: Setting) -> tuple[ConfigSynonym, ...]:
        """Returns the sources of a broker setting: most specific first, within a source in order of precedence."""
        names = SYNONYMS.get(setting.name, (setting.name,))
        layers = (
            (self.dynamic_broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self.static, ConfigSource.STATIC_BROKER_CONFIG),
        )
        found = [
            ConfigSynonym(name, None if setting.sensitive else texts[name], source)
            for texts, source in layers
            for name in names
            if name in texts
        ]
        for name in names:
            text = BROKER_CONFIGS[name].format(BROKER_CONFIGS[name].default)
            if text is not None:
                found.append(ConfigSynonym(name, text, ConfigSource.DEFAULT_CONFIG))
        # As in Kafka: a list that does not begin with the name itself is not about this setting.
        while found and found[0].name != setting.name:
            del found[0]
        return tuple(found)

    def _entry(self, setting: Setting) -> ConfigEntry:
        synonyms = self.synonyms(setting)
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
        text = None if setting.sensitive else setting.format(self._values[setting.name])
        fixed = setting.dynamic is DynamicMode.READ_ONLY
        return ConfigEntry(setting.name, text, source, setting.type, fixed, setting.sensitive, synonyms, setting.doc)

    def _foreign_entry(self, name: str) -> ConfigEntry:
        sensitive = any(name.endswith(secret) for secret in kafka_names.SENSITIVE)
        layers = (
            (self.dynamic_broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self.static, ConfigSource.STATIC_BROKER_CONFIG),
        )
        synonyms = tuple(
            ConfigSynonym(name, None if sensitive else texts[name], source) for texts, source in layers if name in texts
        )
        kind = ConfigType.PASSWORD if sensitive else ConfigType.STRING
        subject = kafka_names.WITHOUT_EFFECT.get(name)
        setting = setting_of(name)  # with an effect if it is of one listener
        without_effect = "Accepted without effect here" + (f" ({subject})." if subject else ".")
        doc = without_effect if setting is None else setting.doc
        fixed = not _is_dynamic(name)
        value, source = (synonyms[0].value, synonyms[0].source) if synonyms else (None, ConfigSource.DEFAULT_CONFIG)
        return ConfigEntry(name, value, source, kind, fixed, sensitive, synonyms, doc)

    # -- rules between settings -------------------------------------------------------------------------------------

    def _check_together(self) -> None:
        if self.log_retention_ms is not None and self.log_retention_ms < 1 and self.log_retention_ms != -1:
            raise UsageError("log.retention.ms must be unlimited (-1) or, greater than or equal to 1")
        if self.default_log_config.retention_ms < 1 and self.default_log_config.retention_ms != -1:
            raise UsageError("log.retention.minutes and log.retention.hours must be -1 (unlimited) or at least 1")
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise UsageError("group.min.session.timeout.ms must not be larger than group.max.session.timeout.ms")
        if self.broker_heartbeat_interval_ms >= self.broker_session_timeout_ms:
            raise UsageError("broker.heartbeat.interval.ms must be smaller than broker.session.timeout.ms")
        if self.replica_socket_timeout_ms < self.replica_fetch_wait_max_ms:
            raise UsageError("replica.socket.timeout.ms must not be smaller than replica.fetch.wait.max.ms")
        if self.registry_file is not None and self.zookeeper_connect is not None:
            raise UsageError(
                f"registry.file is {self.registry_file} but zookeeper.connect is {self.zookeeper_connect}: a cluster "
                "has one registry; leave one of them out"
            )
        # ZooKeeper would show everybody what stands before the colon, so the whole secret if there is none.
        if self.zookeeper_digest is not None and not all(self.zookeeper_digest.partition(":")):
            raise UsageError(
                "zookeeper.digest is not of the form user:password; give both, such as brokers:secret with a secret of "
                "your own"
            )
        if self.zookeeper_set_acl and self.zookeeper_digest is None:
            raise UsageError(
                "zookeeper.set.acl needs zookeeper.digest=user:password, by which brokers authenticate to ZooKeeper"
            )
        if not self.data_dirs or not all(self.data_dirs):
            raise UsageError("At least one log directory must be defined via log.dirs or log.dir.")
        # What was set at run time was refused then, if need be; meanwhile it may have become outdated.
        if "cordoned.log.dirs" in self.static and "cordoned.log.dirs" not in self.dynamic_broker:
            self.check_cordoned(self.cordoned_log_dirs)
        validate_topic_overrides({}, self.topic_defaults)
        AdvertiseRules(self.advertise)
        parse_overrides(self.max_connections_per_ip_overrides)
        self._check_names_of_listeners()

    def _check_names_of_listeners(self) -> None:
        names = {endpoint.name for endpoint in self.endpoints}
        for endpoint in self.advertised_endpoints:
            if endpoint.name not in names:
                raise UsageError(
                    f"advertised.listeners: {endpoint.name} is not a name in listeners ({', '.join(sorted(names))})"
                )
            if endpoint.host in WILDCARDS:
                raise UsageError(
                    f"advertised.listeners: {endpoint} cannot use the nonroutable meta-address 0.0.0.0. "
                    "Use a routable IP address."
                )
        told = self.advertised_inter_broker_endpoint or self.inter_broker_endpoint
        if told.host in WILDCARDS and (self.zookeeper_connect is None or self.advertised_inter_broker_endpoint):
            raise UsageError(
                f"inter.broker.listener.name: other brokers cannot connect to {told}; "
                "name it in advertised.listeners with the address that they reach"
            )


class _SynonymsOf(dict[str, tuple[ConfigSynonym, ...]]):
    """A broker's synonyms by setting, computed at the first use: DescribeConfigs of a topic needs about thirty of
    them."""

    def __init__(self, config: BrokerConfig) -> None:
        super().__init__()
        self._config = config

    def get(self, name: str, default: object = ()) -> tuple[ConfigSynonym, ...]:
        return self._config.synonyms(BROKER_CONFIGS[name])


def unknown_setting(name: str) -> str:
    """Returns the message that refuses a name, with a similar known name."""
    close = nearest(name, (*BROKER_CONFIGS.names(), *kafka_names.WITHOUT_EFFECT))
    hint = f"; did you mean {close}?" if close else "; `barnabas serve --help` lists all settings"
    return f"{name} is not a setting of a broker{hint}"


def _with_both_ids(static: dict[str, str]) -> dict[str, str]:
    """Adds the other one of node.id and broker.id, which are one setting with two names."""
    old, new = static.get("broker.id"), static.get("node.id")
    if old is not None and old.strip() == "-1":  # Kafka's value for "choose a number"
        del static["broker.id"]
        old = None
    if old is not None and new is not None and old.strip() != new.strip():
        raise UsageError(f"node.id is {new} but broker.id is {old}: they are one setting and must be equal")
    number = new if new is not None else old
    if number is not None:
        static["node.id"] = static["broker.id"] = number
    return static


def _limits_of_listeners(texts: Mapping[str, str]) -> dict[str, int]:
    limits = {}
    for name, text in texts.items():
        listener, setting = limited_listener(name), setting_of(name)
        if listener is not None and setting is not None:
            most = setting.parse(text)
            assert isinstance(most, int)
            limits[listener] = most
    return limits


def _is_dynamic(name: str) -> bool:
    if name in BROKER_CONFIGS:
        return BROKER_CONFIGS[name].dynamic is not DynamicMode.READ_ONLY
    return name in kafka_names.DYNAMIC or name.startswith("listener.name.")


def _applicable(name: str, text: str) -> bool:
    setting = setting_of(name)
    if setting is None:
        return True
    try:
        setting.parse(text)
    except InvalidConfig:
        return False
    return True
