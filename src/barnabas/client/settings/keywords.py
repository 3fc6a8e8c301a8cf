"""The keyword arguments of the clients, for editors and type checkers.

Made by `python tools/generate_client_keywords.py --write`; do not edit.
"""

import ssl
from collections.abc import Callable
from typing import Any, Literal, TypedDict

from barnabas.types import TopicPartition

__all__ = ["AdminKeywords", "CommonKeywords", "ConsumerKeywords", "ProducerKeywords"]


class CommonKeywords(TypedDict, total=False):
    """The keyword arguments of every client. None stands for the default."""

    bootstrap_servers: str | list[str] | tuple[str, ...] | None
    """Addresses to begin with, as host:port. One that answers is enough; all others are learnt from it."""
    bootstrap_timeout_ms: int | None
    """The time to try the addresses of `bootstrap.servers` while none has ever answered, each of them once at least;
    then calls fail with every attempt. -1: as long as the calls may take. Not a setting of Kafka."""
    bootstrap_resolve_timeout_ms: int | None
    """The time from the first request on to resolve the name of an address in `bootstrap.servers`; then calls fail. 0:
    no bound of its own. Names are never resolved when a client is made, unlike in Java clients."""
    client_id: str | None
    """A name for this client in the brokers' logs and quotas."""
    request_timeout_ms: int | None
    """The time that a response may take before the request counts as lost."""
    retry_backoff_ms: int | None
    """The first wait before a failed request is sent again; it doubles up to `retry.backoff.max.ms`."""
    retry_backoff_max_ms: int | None
    """The longest wait before a failed request is sent again."""
    reconnect_backoff_ms: int | None
    """The first wait before a broker that could not be reached is tried again; it doubles up to
    `reconnect.backoff.max.ms`."""
    reconnect_backoff_max_ms: int | None
    """The longest wait before a broker that could not be reached is tried again."""
    socket_connection_setup_timeout_ms: int | None
    """The time that a connection may take to be made; it doubles up to `socket.connection.setup.timeout.max.ms`."""
    socket_connection_setup_timeout_max_ms: int | None
    """The longest that a connection may take to be made after several failures."""
    connections_max_idle_ms: int | None
    """A connection without a request for this long is closed; negative: never."""
    metadata_max_age_ms: int | None
    """Metadata of topics and brokers is refreshed after this long, also if nothing failed."""
    metadata_recovery_rebootstrap_trigger_ms: int | None
    """Without fresh metadata for this long the client begins again from `bootstrap.servers`."""
    send_buffer_bytes: int | None
    """SO_SNDBUF; -1 leaves the system's."""
    receive_buffer_bytes: int | None
    """SO_RCVBUF; -1 leaves the system's."""
    metadata_recovery_strategy: Literal["rebootstrap", "none"] | str | None
    """The reaction when no known broker can be reached: begin again from `bootstrap.servers`, or keep trying."""
    metadata_cluster_check_enable: bool | None
    """Whether a broker that is connected to is asked if it is the one of the cluster that the metadata name (from Kafka
    4.4 on). If not, the client begins again from `bootstrap.servers`; without effect with
    `metadata.recovery.strategy=none`."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] | str | None
    """The protocol of connections: plain TCP or TLS (SSL), with or without SASL authentication."""
    ssl_truststore_location: str | None
    """PEM file of the certificates that are trusted. Unset, with `ssl.truststore.certificates` unset too: the
    system's."""
    ssl_truststore_certificates: str | None
    """The trusted certificates themselves, in PEM."""
    ssl_truststore_type: Literal["PEM"] | str | None
    """Only PEM is read. `keytool` and `openssl pkcs12` convert from JKS and PKCS12."""
    ssl_keystore_location: str | None
    """PEM file of this client's certificate chain and private key."""
    ssl_keystore_certificate_chain: str | None
    """This client's certificate chain itself, in PEM."""
    ssl_keystore_key: str | None
    """This client's private key itself, in PEM."""
    ssl_keystore_type: Literal["PEM"] | str | None
    """Only PEM is read. `openssl pkcs12` converts from PKCS12."""
    ssl_key_password: str | None
    """The password of the private key."""
    ssl_endpoint_identification_algorithm: Literal["https", ""] | str | None
    """`https`: the broker's certificate must carry the name that was connected to. Empty: any name will do, which lets
    anyone with a trusted certificate stand in for the broker."""
    ssl_enabled_protocols: str | list[str] | tuple[str, ...] | None
    """Versions of TLS that may be spoken."""
    ssl_cipher_suites: str | list[str] | tuple[str, ...] | None
    """Cipher suites for TLS 1.2, by OpenSSL's names. Empty: OpenSSL's choice."""
    ssl_context: ssl.SSLContext | None
    """An `ssl.SSLContext` that is used as it is; all other `ssl.` settings are then without effect. Not a setting of
    Kafka."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | str | None
    """The mechanism by which the client proves who it is. Kafka's default, GSSAPI (Kerberos), is not supported: with
    SASL it must be set."""
    sasl_username: str | None
    """The user for PLAIN and SCRAM. Kafka's Java clients have it in `sasl.jaas.config` only."""
    sasl_password: str | None
    """The password for PLAIN and SCRAM. Kafka's Java clients have it in `sasl.jaas.config` only."""
    sasl_jaas_config: str | None
    """User and password as Kafka's Java clients write them: a PlainLoginModule or ScramLoginModule."""
    sasl_oauthbearer_token_provider: Callable[[], str] | None
    """For OAUTHBEARER: called without arguments for each authentication, returns the token. Not a setting of Kafka."""


class AdminKeywords(CommonKeywords, total=False):
    """The keyword arguments of an admin client."""

    default_api_timeout_ms: int | None
    """The time that a call without a timeout of its own may take."""
    retries: int | None
    """The number of times that a request which failed for a passing reason is sent again, within its time."""


class ProducerKeywords(CommonKeywords, total=False):
    """The keyword arguments of a producer."""

    key_serializer: Callable[[Any], bytes | None] | None
    """Called with a record's key, returns its bytes; not called for None. Unset: keys are bytes already."""
    value_serializer: Callable[[Any], bytes | None] | None
    """Called with a record's value, returns its bytes; not called for None, a tombstone. Unset: values are bytes
    already."""
    acks: Literal["all", 0, 1, -1] | str | None
    """The brokers that must have a record before it counts as sent: none (0), the leader (1), all in-sync replicas
    (all, or -1)."""
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] | str | None
    """The compression of batches."""
    enable_idempotence: bool | None
    """Each record is written once and in order, whatever is sent again. Needs `acks=all`, retries and at most five
    requests in flight; off by itself where those are set otherwise."""
    linger_ms: int | None
    """The time that a batch waits for further records before it is sent though not full."""
    batch_size: int | None
    """Bytes at which a batch is full. A single larger record makes a batch of its own. Where it is not set, a batch may
    hold 64 KB, and 256 KB of what `send_many` and `send_table` get, if that comes while it lingers."""
    buffer_memory: int | None
    """Bytes of records that may wait to be sent. Sending blocks when they are used up, for `max.block.ms` at most."""
    max_block_ms: int | None
    """The time that sending may block for metadata and for memory; also the limit for the calls about transactions."""
    max_request_size: int | None
    """Largest request, and with it the largest record, in bytes before compression."""
    delivery_timeout_ms: int | None
    """A record that is not acknowledged after this long has failed. At least `linger.ms` + `request.timeout.ms`."""
    max_in_flight_requests_per_connection: int | None
    """Requests on their way to one broker at a time; at most five with idempotence."""
    compression_gzip_level: int | None
    """Level of gzip; -1 is zlib's choice, 6."""
    compression_lz4_level: int | None
    """Level of lz4. 9 means the fast compressor, as in Kafka; others the slow one that compresses more."""
    compression_zstd_level: int | None
    """Level of zstd."""
    partitioner_ignore_keys: bool | None
    """Records with a key are spread as if they had none."""
    partitioner_adaptive_partitioning_enable: bool | None
    """Records without a key go more to partitions whose brokers are faster."""
    partitioner_availability_timeout_ms: int | None
    """A partition whose broker has taken nothing for this long gets no records without a key; 0: never mind."""
    partitioner_rack_aware: bool | None
    """Records without a key go to partitions whose leader is in the rack of this client (`client.rack`), as long as
    there are any."""
    client_rack: str | None
    """The rack of this client, for `partitioner.rack.aware`."""
    metadata_max_idle_ms: int | None
    """A topic to which nothing was sent for this long is no longer asked for."""
    transaction_timeout_ms: int | None
    """A transaction that is open for longer is aborted by the broker."""
    transaction_two_phase_commit_enable: bool | None
    """Transactions take part in commits over several systems (KIP-939): the broker never ends them by itself, so
    `transaction.timeout.ms` has no meaning."""
    transactional_id: str | None
    """Makes the producer transactional. Of several producers with the same id only the latest can write."""
    retries: int | None
    """The number of times that a request which failed for a passing reason is sent again, within its time."""
    partitioner_class: Literal["round_robin"] | Callable[[str, bytes | None, bytes | None, int], int] | None
    """Chooses the partition of a record that names none: `round_robin`, or a function of topic, key, value (all as
    sent) and the number of partitions. Unset: by murmur2 of the key as Kafka's Java producer; without a key one
    partition until a batch is full, then another."""
    interceptor_classes: list[Any] | tuple[Any, ...] | None
    """Objects, or classes of such, with `on_send(record)`, which gets each ProducerRecord before it is serialized and
    may return another, `on_acknowledgement(error, metadata)`, or both. What they raise is logged. Bulk calls are
    refused."""


class ConsumerKeywords(CommonKeywords, total=False):
    """The keyword arguments of a consumer, except for its deserializers."""

    group_id: str | None
    """The consumer group, whose members share the partitions. Unset: no group; the consumer reads all partitions of the
    topics that it subscribes to, from where `auto.offset.reset` says, or those that it assigns, and commits nothing."""
    group_instance_id: str | None
    """Makes this a static member: one that comes back within `session.timeout.ms` gets its partitions without a
    rebalance."""
    enable_auto_commit: bool | None
    """Positions are committed automatically every `auto.commit.interval.ms`. Off without `group.id`."""
    auto_commit_interval_ms: int | None
    """The interval at which positions are committed automatically."""
    auto_offset_reset: str | None
    """The position without a committed offset, or if that no longer exists: the first record, the end, the first record
    that is not older than a duration, or an error (none)."""
    isolation_level: Literal["read_committed", "read_uncommitted"] | str | None
    """`read_committed`: records of transactions are seen once these are committed, and never if aborted."""
    max_poll_records: int | None
    """Most records that one poll returns."""
    max_poll_interval_ms: int | None
    """A member that has not polled for this long leaves its group."""
    session_timeout_ms: int | None
    """A member whose heartbeats have not arrived for this long is taken out of the group by the broker."""
    heartbeat_interval_ms: int | None
    """The interval at which a member sends heartbeats; below `session.timeout.ms`, better a third of it."""
    fetch_min_bytes: int | None
    """A broker waits until it has this many bytes, `fetch.max.wait.ms` at most."""
    fetch_max_wait_ms: int | None
    """The time that a broker waits for `fetch.min.bytes`."""
    fetch_max_bytes: int | None
    """Most bytes in one answer; a larger first batch is sent all the same."""
    max_partition_fetch_bytes: int | None
    """Most bytes of one partition in one answer; a larger first batch is sent all the same."""
    check_crcs: bool | None
    """Verify the checksum of each batch."""
    client_rack: str | None
    """The rack of this client: it may then be sent to a replica in the same rack. Of equal shares of a group's
    partitions, `range` and the sticky assignors give it those with a replica there."""
    allow_auto_create_topics: bool | None
    """A request for a topic that does not exist may create it."""
    exclude_internal_topics: bool | None
    """Patterns leave out internal topics such as `__consumer_offsets`."""
    default_api_timeout_ms: int | None
    """The time that a call without a timeout of its own may take."""
    group_protocol: Literal["classic", "consumer"] | str | None
    """The protocol by which partitions are assigned, by a member (`classic`). `consumer` (KIP-848), by the broker, is
    refused: this client does not speak that."""
    partition_assignment_strategy: str | list[Any] | tuple[Any, ...] | None
    """The ways in which the members of a group may share partitions, best first: `range`, `roundrobin`, `sticky`,
    `cooperative-sticky`, or objects of your own. All members must have one in common."""
    interceptor_classes: list[Any] | tuple[Any, ...] | None
    """Objects that see records before they are returned (`on_consume`, which may change them) and offsets that were
    committed (`on_commit`)."""
    on_assigned: Callable[[Any, tuple[TopicPartition, ...]], object] | None
    """Called after partitions were assigned and before they are read; see `subscribe`."""
    on_revoked: Callable[[Any, tuple[TopicPartition, ...]], object] | None
    """Called before partitions are revoked; see `subscribe`."""
    on_lost: Callable[[Any, tuple[TopicPartition, ...]], object] | None
    """Called when other members may have the partitions already; see `subscribe`."""
