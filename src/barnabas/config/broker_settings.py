# ruff: noqa: E501 -- the table of settings reads as rows
"""The broker's settings under Kafka's names, each with type, default, rule and meaning.

Only settings with an effect are here; those that Kafka knows and we do not need are in `kafka_names`. Settings that are
nothing but the default of a topic setting are derived from `topic`.
"""

import re
from collections.abc import Iterator
from typing import Final

from barnabas.config.definitions import (
    ConfigDef,
    ConfigType,
    DynamicMode,
    Importance,
    OneOf,
    Range,
    Rule,
    Setting,
    Value,
    at_least,
    between,
)
from barnabas.config.log_config import LONG_MAX
from barnabas.config.topic import BROKER_DEFAULTS

__all__ = ["BROKER_CONFIGS", "GROUPS", "RACK_AWARE", "SYNONYMS", "limited_listener", "setting_of"]

INT_MAX: Final = 2**31 - 1
LEADER_ONLY: Final = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
DOUBLE_MAX: Final = 1.7976931348623157e308

_INT, _LONG, _SHORT, _BOOLEAN = ConfigType.INT, ConfigType.LONG, ConfigType.SHORT, ConfigType.BOOLEAN
_STRING, _LIST, _DOUBLE = ConfigType.STRING, ConfigType.LIST, ConfigType.DOUBLE
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_FIXED, _CLUSTER = DynamicMode.READ_ONLY, DynamicMode.CLUSTER_WIDE

_Row = tuple[str, ConfigType, Value, Rule | None, Importance, DynamicMode, str]

_IDENTITY: Final[tuple[_Row, ...]] = (
    ("node.id", _INT, 1, at_least(0), _HIGH, _FIXED,
     "This broker's number, unique in the cluster. `broker.id` is the older name of the same setting."),
    ("broker.id", _INT, -1, at_least(-1), _HIGH, _FIXED,
     "Older name of `node.id`; where both are set they must be equal."),
    ("broker.rack", _STRING, None, None, _MEDIUM, _FIXED,
     "Where this broker stands. Replicas of a partition are spread over racks."),
    ("log.dir", _LIST, ("barnabas-data",), None, _HIGH, _FIXED,
     "The data directory; used where `log.dirs` is not set."),
    ("log.dirs", _LIST, None, None, _HIGH, _FIXED,
     "Data directories, separated by commas. A new registry is made in the first."),
    ("cordoned.log.dirs", _LIST, (), None, _MEDIUM, DynamicMode.PER_BROKER,
     "Data directories that get no new replicas, `*` for all: then the broker gets none. What is in them is served and replicated as before (KIP-1066)."),
    ("log.dir.reserve.bytes", _LONG, 2 * 1024**2, at_least(0), _MEDIUM, _FIXED,
     "Space set aside in each data directory, and beside a registry that brokers share: on a full disk they start, elect leaders, delete topics and apply retention with it. 0: none. Kafka has no such reserve."),
    ("registry.file", _STRING, None, None, _HIGH, _FIXED,
     "The registry's file, which the brokers of a cluster on one machine share. Where it is not set, the broker has one for itself in its first data directory. Kafka has no such setting."),
    ("zookeeper.connect", _STRING, None, None, _HIGH, _FIXED,
     "ZooKeeper as the registry of a cluster on several machines: `host:2181,host:2181/path`. Needs the extra `zookeeper`."),
    ("zookeeper.session.timeout.ms", _INT, 18_000, at_least(1), _HIGH, _FIXED,
     "ZooKeeper ends the session of a broker that it has not heard of for this long: then another one may become the controller. ZooKeeper's own limits, 2 and 20 of its ticks, have to allow it."),
    ("zookeeper.connection.timeout.ms", _INT, None, at_least(1), _HIGH, _FIXED,
     "How long a start waits for ZooKeeper; zookeeper.session.timeout.ms where it is not set."),
    ("zookeeper.digest", ConfigType.PASSWORD, None, None, _MEDIUM, _FIXED,
     "`user:password` by which the brokers authenticate to ZooKeeper, from the founding of the cluster on: only they can read its secret then. Kafka has no such setting."),
    ("zookeeper.set.acl", _BOOLEAN, False, None, _HIGH, _FIXED,
     "With zookeeper.digest, from the founding of the cluster on, only the brokers can write to ZooKeeper; all can read what is no secret."),
    ("zookeeper.ssl.client.enable", _BOOLEAN, False, None, _MEDIUM, _FIXED,
     "The port in zookeeper.connect is one that speaks TLS."),
    ("zookeeper.ssl.truststore.location", _STRING, None, None, _MEDIUM, _FIXED,
     "PEM file of the certificates that are trusted. Unset: the system's."),
    ("zookeeper.ssl.keystore.location", _STRING, None, None, _MEDIUM, _FIXED,
     "PEM file of the broker's own certificate and key, where ZooKeeper asks for one."),
    ("zookeeper.ssl.keystore.password", ConfigType.PASSWORD, None, None, _MEDIUM, _FIXED,
     "The password of that key."),
    ("zookeeper.ssl.endpoint.identification.algorithm", _STRING, "HTTPS", None, _LOW, _FIXED,
     "HTTPS: the certificate of ZooKeeper must name the host in zookeeper.connect. Empty: it need not."),
    ("broker.id.generation.enable", _BOOLEAN, True, None, _MEDIUM, _FIXED,
     "With zookeeper.connect and without node.id, the broker takes the number in its data directories, or one from ZooKeeper."),
    ("reserved.broker.max.id", _INT, 1000, at_least(0), _MEDIUM, _FIXED,
     "Numbers from ZooKeeper are larger than this."),
    ("broker.heartbeat.interval.ms", _INT, 2000, at_least(1), _MEDIUM, _FIXED,
     "How often the broker tells the controller that it is alive, at least four times in a session."),
    ("broker.session.timeout.ms", _INT, 9000, at_least(1), _MEDIUM, _FIXED,
     "A broker that the controller has not heard of for this long is fenced: other brokers lead its partitions. A process that has ended is noticed at once. The same for all brokers: while it is changed one by one, it may be halved or doubled at most."),
    ("controlled.shutdown.enable", _BOOLEAN, True, None, _MEDIUM, _FIXED,
     "Whether a broker that stops has its partitions led by others first. Otherwise they notice when it has ended."),
    ("log.dir.failure.timeout.ms", _LONG, 30_000, at_least(1), _LOW, _FIXED,
     "A broker that cannot tell the controller for this long that its data directories have failed ends. It does not as long as one serves records, unlike in Kafka."),
    ("durability", _STRING, "page-cache", OneOf("page-cache", "fsync"), _HIGH, _FIXED,
     "When a write is acknowledged: `page-cache` as Kafka (safe against a killed process; against power loss by replication), `fsync` once it is on the disk, many writes per fsync."),
)  # fmt: skip

_NETWORK: Final[tuple[_Row, ...]] = (
    ("listeners", _LIST, ("PLAINTEXT://127.0.0.1:9092",), None, _HIGH, _FIXED,
     "Addresses to listen on, as NAME://host:port; an empty host or 0.0.0.0 means every interface, port 0 a free port. With zookeeper.connect, other brokers know every interface by the machine's full name."),
    ("advertised.listeners", _LIST, None, None, _HIGH, _FIXED,
     "Addresses that clients are told to connect to, as NAME://host:port. Unset: see `advertise`."),
    ("advertise", _LIST, ("auto",), None, _HIGH, _FIXED,
     "What clients are told where `advertised.listeners` does not say: `auto` is the address at which the client's connection arrived (`localhost` for a published port of the container the broker runs in); `listeners` is the address in `listeners`; before either, rules for clients from a network, as CIDR=host or CIDR=host:port."),
    ("listener.security.protocol.map", _STRING, "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL", None, _LOW, _FIXED,
     "The protocol that each listener name speaks, as NAME:PROTOCOL. Only PLAINTEXT is served."),
    ("controller.listener.names", _LIST, (), None, _HIGH, _FIXED,
     "Listeners of Kafka's separate controllers. Barnabas has none: listeners named here are not opened."),
    ("inter.broker.listener.name", _STRING, None, None, _MEDIUM, _FIXED,
     "The listener for the cluster's other brokers, which authenticate to it. An entry of `listeners` with this name and the protocol SASL_PLAINTEXT is for brokers alone. Otherwise they get a free port at the address of that entry, or of the first one; for every interface that is 127.0.0.1, and with zookeeper.connect every interface. It is opened when the cluster has a second broker."),
    ("socket.listen.backlog.size", _INT, 50, at_least(1), _MEDIUM, _FIXED,
     "Connections that the kernel may hold before they are accepted."),
    ("socket.send.buffer.bytes", _INT, 102_400, at_least(-1), _HIGH, _FIXED,
     "SO_SNDBUF of client connections; -1 leaves the system's."),
    ("socket.receive.buffer.bytes", _INT, 102_400, at_least(-1), _HIGH, _FIXED,
     "SO_RCVBUF of client connections; -1 leaves the system's."),
    ("socket.request.max.bytes", _INT, 100 * 1024**2, at_least(1), _HIGH, _FIXED,
     "Largest request; a connection that announces a larger one is closed."),
    ("max.connections", _INT, INT_MAX, at_least(0), _MEDIUM, _CLUSTER,
     "Connections that the broker holds at once; further ones wait to be accepted. `listener.name.NAME.max.connections` says it of one listener for clients."),
    ("max.connections.per.ip", _INT, INT_MAX, at_least(0), _MEDIUM, _CLUSTER,
     "Connections from one address; further ones are closed."),
    ("max.connections.per.ip.overrides", _STRING, "", None, _MEDIUM, _CLUSTER,
     "Exceptions to `max.connections.per.ip`, as host:count, separated by commas."),
    ("request.timeout.ms", _INT, 30_000, at_least(1), _HIGH, _FIXED,
     "How long this broker waits for another one's answer, and an end marker of a transaction for the replicas."),
    ("socket.connection.setup.timeout.ms", _LONG, 10_000, at_least(1), _MEDIUM, _FIXED,
     "The time that a connection to another broker may take to be made; it doubles up to `socket.connection.setup.timeout.max.ms`."),
    ("socket.connection.setup.timeout.max.ms", _LONG, 30_000, at_least(1), _MEDIUM, _FIXED,
     "The longest that a connection to another broker may take to be made after several failures."),
    ("max.connection.creation.rate", _INT, INT_MAX, at_least(0), _MEDIUM, _CLUSTER,
     "New connections per second; further ones wait in the kernel's backlog."),
    ("connections.max.idle.ms", _LONG, 600_000, None, _MEDIUM, _FIXED,
     "A connection without a request for this long is closed; negative: never."),
    ("queued.max.requests", _INT, 500, at_least(1), _HIGH, _FIXED,
     "Answers that may be pending on one connection before the broker stops reading from it."),
    ("queued.max.request.bytes", _LONG, -1, None, _MEDIUM, _FIXED,
     "Bytes of requests with pending answers, over all connections, before the broker stops reading from those that bring more; -1 is no limit."),
    ("queued.max.response.bytes", _LONG, 128 * 1024**2, None, _MEDIUM, _FIXED,
     "Bytes of answers that clients have not read yet, over all connections; beyond, those that have gone longest without reading are closed. Records that leave straight from the log files do not count; -1 is no limit. Kafka has no such bound."),
    ("max.request.partition.size.limit", _INT, 2000, at_least(1), _MEDIUM, _FIXED,
     "Partitions that one DescribeTopicPartitions answer may hold."),
    ("fetch.max.bytes", _INT, 55 * 1024**2, at_least(1024), _MEDIUM, _FIXED,
     "Most bytes of records in one Fetch answer, whatever the client asks for."),
    ("max.incremental.fetch.session.cache.slots", _INT, 1000, at_least(0), _MEDIUM, _FIXED,
     "Incremental fetch sessions that are kept."),
)  # fmt: skip

_TOPICS: Final[tuple[_Row, ...]] = (
    ("num.partitions", _INT, 1, at_least(1), _MEDIUM, _FIXED,
     "Partitions of a topic that is created without saying how many."),
    ("default.replication.factor", _INT, 1, None, _MEDIUM, _FIXED,
     "Replicas of a topic that is created without saying how many. If it is set, such a topic is not created before so many brokers are registered."),
    ("auto.create.topics.enable", _BOOLEAN, True, None, _HIGH, _FIXED,
     "Whether asking for a topic that does not exist creates it."),
    ("delete.topic.enable", _BOOLEAN, True, None, _HIGH, _FIXED,
     "Whether topics may be deleted."),
    ("auto.leader.rebalance.enable", _BOOLEAN, True, None, _HIGH, _FIXED,
     "Whether preferred leaders that are in sync lead again by themselves, in a cluster of several brokers."),
    ("leader.imbalance.check.interval.seconds", _LONG, 300, at_least(1), _HIGH, _FIXED,
     "How often the controller looks for preferred leaders that do not lead."),
    ("replica.lag.time.max.ms", _LONG, 30_000, at_least(1), _HIGH, _FIXED,
     "A follower that has not had all records for this long leaves the in-sync replicas."),
    ("replica.fetch.wait.max.ms", _INT, 500, at_least(0), _HIGH, _FIXED,
     "How long a leader may hold a follower's Fetch that finds no records."),
    ("replica.fetch.min.bytes", _INT, 1, at_least(0), _HIGH, _FIXED,
     "The bytes for which a leader holds a follower's Fetch."),
    ("replica.fetch.max.bytes", _INT, 1024**2, at_least(0), _MEDIUM, _FIXED,
     "The bytes of one partition that a follower asks for. A larger first batch is still sent whole."),
    ("replica.fetch.response.max.bytes", _INT, 10 * 1024**2, at_least(0), _MEDIUM, _FIXED,
     "The bytes of one Fetch response that a follower asks for."),
    ("replica.fetch.backoff.ms", _INT, 1000, at_least(0), _MEDIUM, _FIXED,
     "How long a follower waits after an error of a partition before it fetches it again."),
    ("replica.socket.timeout.ms", _INT, 30_000, at_least(1), _HIGH, _FIXED,
     "How long a follower waits for the answer to a Fetch; at least `replica.fetch.wait.max.ms`."),
    ("replica.socket.receive.buffer.bytes", _INT, -1, at_least(-1), _HIGH, _FIXED,
     "SO_RCVBUF of connections to other brokers; -1 leaves the system's, which adapts it. Kafka's default is 65536."),
    ("replica.selector.class", _STRING, LEADER_ONLY, OneOf(LEADER_ONLY, RACK_AWARE), _MEDIUM, _FIXED,
     "Where consumers read: from the leader, or from an in-sync replica in their rack (client.rack, broker.rack), which may be a little behind. Kafka's names of its own two classes."),
    ("replica.high.watermark.checkpoint.interval.ms", _LONG, 5000, None, _HIGH, _FIXED,
     "How often high watermarks are written to disk."),
    ("leader.replication.throttled.rate", _LONG, LONG_MAX, at_least(0), _MEDIUM, _CLUSTER,
     "Bytes per second that this broker sends, as leader, to replicas that `leader.replication.throttled.replicas` of their topics names and that are not in sync; 0 stops them."),
    ("follower.replication.throttled.rate", _LONG, LONG_MAX, at_least(0), _MEDIUM, _CLUSTER,
     "Bytes per second that this broker fetches for its replicas that `follower.replication.throttled.replicas` of their topics names and that are not in sync; 0 stops them."),
    ("replica.alter.log.dirs.io.max.bytes.per.second", _LONG, LONG_MAX, at_least(1), _MEDIUM, _CLUSTER,
     "Bytes per second that this broker copies to move replicas between its log directories."),
    ("replication.quota.window.num", _INT, 11, at_least(1), _LOW, _FIXED,
     "What these rates left unused in so many windows may be used later; after a longer rest, what one window has."),
    ("replication.quota.window.size.seconds", _INT, 1, at_least(1), _LOW, _FIXED,
     "The length of such a window."),
    ("alter.log.dirs.replication.quota.window.num", _INT, 11, at_least(1), _LOW, _FIXED,
     "As `replication.quota.window.num`, for moves between log directories."),
    ("alter.log.dirs.replication.quota.window.size.seconds", _INT, 1, at_least(1), _LOW, _FIXED,
     "The length of such a window."),
    ("producer.id.expiration.ms", _INT, 86_400_000, at_least(1), _LOW, _CLUSTER,
     "A producer id that wrote nothing to a partition for this long is forgotten there."),
    ("producer.id.expiration.check.interval.ms", _INT, 600_000, at_least(1), _LOW, _FIXED,
     "How often forgotten producer ids are looked for."),
)  # fmt: skip

_LOG: Final[tuple[_Row, ...]] = (
    ("log.retention.ms", _LONG, None, None, _HIGH, _CLUSTER,
     "Default of the topic setting `retention.ms`. Unset: `log.retention.minutes`, then `log.retention.hours`."),
    ("log.retention.minutes", _INT, None, None, _HIGH, _FIXED,
     "As `log.retention.ms`, in minutes."),
    ("log.retention.hours", _INT, 168, None, _HIGH, _FIXED,
     "As `log.retention.ms`, in hours."),
    ("log.retention.check.interval.ms", _LONG, 300_000, at_least(1), _MEDIUM, _FIXED,
     "How often old segments are looked for."),
    ("log.roll.ms", _LONG, None, at_least(1), _HIGH, _CLUSTER,
     "Default of the topic setting `segment.ms`. Unset: `log.roll.hours`."),
    ("log.roll.hours", _INT, 168, at_least(1), _HIGH, _FIXED,
     "As `log.roll.ms`, in hours."),
    ("log.roll.jitter.ms", _LONG, None, at_least(0), _HIGH, _CLUSTER,
     "Default of the topic setting `segment.jitter.ms`. Unset: `log.roll.jitter.hours`."),
    ("log.roll.jitter.hours", _INT, 0, at_least(0), _HIGH, _FIXED,
     "As `log.roll.jitter.ms`, in hours."),
    ("log.flush.interval.ms", _LONG, None, None, _HIGH, _CLUSTER,
     "Default of the topic setting `flush.ms`. Unset: `log.flush.scheduler.interval.ms`."),
    ("log.flush.scheduler.interval.ms", _LONG, LONG_MAX, None, _HIGH, _FIXED,
     "How often logs are looked at for data older than `flush.ms`; at least every 10 seconds."),
    ("log.flush.offset.checkpoint.interval.ms", _INT, 60_000, at_least(0), _HIGH, _FIXED,
     "How often the offsets up to which logs are flushed are written to disk."),
    ("log.flush.start.offset.checkpoint.interval.ms", _INT, 60_000, at_least(0), _HIGH, _FIXED,
     "How often the logs' start offsets are written to disk."),
    ("num.recovery.threads.per.data.dir", _INT, 2, at_least(1), _HIGH, _FIXED,
     "After the machine went down: how many logs of a data directory are read from its disk at a time."),
    ("log.cleaner.enable", _BOOLEAN, True, None, _MEDIUM, _FIXED,
     "Whether compacted topics, the broker's own among them, are compacted."),
    ("log.cleaner.backoff.ms", _LONG, 15_000, at_least(0), _MEDIUM, _CLUSTER,
     "How often logs that need cleaning are looked for."),
    ("log.cleaner.dedupe.buffer.size", _LONG, 128 * 1024**2, at_least(1024**2), _MEDIUM, _CLUSTER,
     "Most memory that the cleaner process takes for its map of keys; 24 bytes a key. A log with more new keys is cleaned in several passes."),
    ("log.cleaner.io.buffer.load.factor", _DOUBLE, 0.9, between(0.01, 1), _MEDIUM, _CLUSTER,
     "How full the map of keys may be."),
    ("log.cleaner.io.buffer.size", _INT, 512 * 1024, at_least(0), _MEDIUM, _CLUSTER,
     "Bytes that the cleaner process reads at a time."),
    ("log.cleaner.io.max.bytes.per.second", _DOUBLE, DOUBLE_MAX, at_least(1), _MEDIUM, _CLUSTER,
     "Most bytes that the cleaner process reads and writes in a second."),
    ("log.initial.task.delay.ms", _LONG, 30_000, at_least(0), _LOW, _FIXED,
     "How long after the start the first retention, flush and checkpoint runs begin."),
)  # fmt: skip

_GROUPS: Final[tuple[_Row, ...]] = (
    ("group.min.session.timeout.ms", _INT, 6000, None, _MEDIUM, _FIXED,
     "Shortest session timeout that a consumer may ask for."),
    ("group.max.session.timeout.ms", _INT, 1_800_000, None, _MEDIUM, _FIXED,
     "Longest session timeout that a consumer may ask for."),
    ("group.initial.rebalance.delay.ms", _INT, 0, at_least(0), _MEDIUM, _FIXED,
     "How long an empty group waits for further members before its first rebalance. Kafka's default is 3000; Kafka's quickstart configuration sets 0, which is the default here."),
    ("group.max.size", _INT, INT_MAX, at_least(1), _MEDIUM, _FIXED,
     "Members that a group may have."),
    ("offset.metadata.max.bytes", _INT, 4096, None, _HIGH, _FIXED,
     "Longest metadata that may be committed with an offset, in bytes."),
    ("offsets.commit.timeout.ms", _INT, 5000, at_least(1), _HIGH, _FIXED,
     "How long a commit may wait for the replicas of the offsets topic."),
    ("offsets.load.buffer.size", _INT, 5 * 1024**2, at_least(1), _HIGH, _FIXED,
     "Bytes read at a time when a coordinator loads its partition; never more than 128 KiB, so that other requests are served meanwhile."),
    ("offsets.retention.minutes", _INT, 10_080, at_least(1), _HIGH, _FIXED,
     "How long the offsets of a group without members are kept."),
    ("offsets.retention.check.interval.ms", _LONG, 600_000, at_least(1), _HIGH, _FIXED,
     "How often expired offsets are looked for."),
    ("offsets.topic.num.partitions", _INT, 50, at_least(1), _HIGH, _FIXED,
     "Partitions of `__consumer_offsets` when it is created; it gets no more later, because their number says which of them has a group."),
    ("offsets.topic.replication.factor", _SHORT, 3, at_least(1), _HIGH, _FIXED,
     "Replicas of `__consumer_offsets`. If it is set, clients wait until so many brokers are registered, and the topic is created then; otherwise it gets at most as many as brokers are registered, but no fewer than a `default.replication.factor` that is set."),
    ("offsets.topic.segment.bytes", _INT, 100 * 1024**2, at_least(1), _HIGH, _FIXED,
     "`segment.bytes` of `__consumer_offsets`: small, because a coordinator reads it all."),
    ("offsets.topic.compression.codec", _INT, 0, Range(0, 4), _HIGH, _FIXED,
     "Compression of what coordinators write: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."),
)  # fmt: skip

_TRANSACTIONS: Final[tuple[_Row, ...]] = (
    ("transaction.max.timeout.ms", _INT, 900_000, at_least(1), _HIGH, _FIXED,
     "Longest `transaction.timeout.ms` that a producer may ask for; the transactions of a two-phase commit have none."),
    ("transactional.id.expiration.ms", _INT, 7 * 24 * 60 * 60 * 1000, at_least(1), _HIGH, _FIXED,
     "A transactional id that nobody used for this long is forgotten."),
    ("transaction.remove.expired.transaction.cleanup.interval.ms", _INT, 3_600_000, at_least(1), _LOW, _FIXED,
     "How often expired transactional ids are looked for."),
    ("transaction.abort.timed.out.transaction.cleanup.interval.ms", _INT, 10_000, at_least(1), _LOW, _FIXED,
     "A transaction is aborted as soon as it is over its time, not at the next of these intervals as in Kafka; this long passes before another try where the abort could not be written."),
    ("transaction.two.phase.commit.enable", _BOOLEAN, False, None, _LOW, _FIXED,
     "Whether producers may take part in two-phase commits with other systems: their transactions never time out."),
    ("transaction.partition.verification.enable", _BOOLEAN, True, None, _LOW, _CLUSTER,
     "Whether a partition's leader asks the coordinator before it takes records of a transaction that an older client began."),
    ("add.partitions.to.txn.retry.backoff.max.ms", _INT, 1000, at_least(0), _HIGH, _FIXED,
     "How long partitions of a producer's next transaction wait for the end of its last one before the producer is told to come again. Kafka's default is 100, which end markers for brokers under load exceed; a client that is told so has further batches on their way, and not all put them in order again."),
    ("transaction.state.log.num.partitions", _INT, 50, at_least(1), _HIGH, _FIXED,
     "Partitions of `__transaction_state` when it is created; it gets no more later, because their number says which of them has a transactional id."),
    ("transaction.state.log.replication.factor", _SHORT, 3, at_least(1), _HIGH, _FIXED,
     "Replicas of `__transaction_state`. If it is set, clients wait until so many brokers are registered, and the topic is created then; otherwise it gets at most as many as brokers are registered, but no fewer than a `default.replication.factor` that is set."),
    ("transaction.state.log.min.isr", _INT, 2, at_least(1), _HIGH, _FIXED,
     "`min.insync.replicas` of `__transaction_state`, at most as many as it gets replicas."),
    ("transaction.state.log.segment.bytes", _INT, 100 * 1024**2, at_least(1), _HIGH, _FIXED,
     "`segment.bytes` of `__transaction_state`: small, because a coordinator reads it all."),
    ("transaction.state.log.load.buffer.size", _INT, 5 * 1024**2, at_least(1), _HIGH, _FIXED,
     "Bytes read at a time when a coordinator loads its partition; never more than 128 KiB, so that other requests are served meanwhile."),
)  # fmt: skip

SYNONYMS: Final[dict[str, tuple[str, ...]]] = {
    "log.roll.ms": ("log.roll.ms", "log.roll.hours"),
    "log.roll.hours": ("log.roll.ms", "log.roll.hours"),
    "log.roll.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "log.roll.jitter.hours": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "log.retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "log.retention.minutes": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "log.retention.hours": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
}
"""Settings that mean the same in other units, in order of precedence (what DescribeConfigs shows as synonyms)."""

_HIGH_DEFAULTS: Final = frozenset(
    ("message.max.bytes", "log.segment.bytes", "log.retention.bytes", "log.flush.interval.messages",
     "log.segment.delete.delay.ms", "compression.type", "min.insync.replicas", "unclean.leader.election.enable")
)  # fmt: skip


def _defaults_of_topics() -> Iterator[Setting]:
    for name, topic in BROKER_DEFAULTS.items():
        importance = _HIGH if name in _HIGH_DEFAULTS else _MEDIUM
        doc = f"Default of the topic setting `{topic.name}`. {topic.doc}"
        yield Setting(name, topic.type, topic.default, doc, topic.rule, importance, _CLUSTER)


def _settings(rows: tuple[_Row, ...]) -> Iterator[Setting]:
    for name, kind, default, rule, importance, dynamic, doc in rows:
        yield Setting(name, kind, default, doc, rule, importance, dynamic, SYNONYMS.get(name, ()))


GROUPS: Final[dict[str, tuple[Setting, ...]]] = {
    "Identity and storage": tuple(_settings(_IDENTITY)),
    "Network": tuple(_settings(_NETWORK)),
    "Topics and replicas": tuple(_settings(_TOPICS)),
    "Logs": tuple(_settings(_LOG)),
    "Defaults of topic settings": tuple(_defaults_of_topics()),
    "Consumer groups": tuple(_settings(_GROUPS)),
    "Transactions": tuple(_settings(_TRANSACTIONS)),
}
"""The settings by subject, in the order in which help and docs show them."""

_LIMIT_OF_LISTENER: Final = re.compile(r"listener\.name\.([^.]+)\.max\.connections")


def limited_listener(name: str) -> str | None:
    """Returns the listener's name in `listener.name.NAME.max.connections`; None for other names of settings."""
    found = _LIMIT_OF_LISTENER.fullmatch(name)
    return None if found is None else found[1].upper()


def setting_of(name: str) -> Setting | None:
    """Returns the setting of this name, also that of one listener; None if there is none with an effect."""
    if limited_listener(name) is None:
        return BROKER_CONFIGS.get(name)
    of_all = BROKER_CONFIGS["max.connections"]
    doc = "Connections of this listener at once; further ones wait to be accepted."
    return Setting(name, of_all.type, of_all.default, doc, of_all.rule, of_all.importance, DynamicMode.PER_BROKER)


BROKER_CONFIGS: Final = ConfigDef(setting for group in GROUPS.values() for setting in group)
