"""Names that Kafka's brokers know and Barnabas does not need, so that an existing server.properties can be used as is.

They are accepted and named in one warning, unless the value requires a missing feature: access control, encryption,
tiered storage. Then the broker refuses to start.
"""

from collections.abc import Callable, Mapping
from typing import Final

__all__ = ["DYNAMIC", "OLD", "PLUGINS", "PRESENT", "SENSITIVE", "WITHOUT_EFFECT", "refusals", "without_effect"]

_BEFORE_4: Final = "details of TLS to ZooKeeper, and versions before 4.0"

_BY_SUBJECT: Final[dict[str, str]] = {
    "KRaft's quorum and metadata log: the registry does their work": """
        controller.performance.always.log.threshold.ms controller.performance.sample.period.ms
        controller.quorum.append.linger.ms controller.quorum.auto.join.enable controller.quorum.bootstrap.servers
        controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms
        controller.quorum.fetch.max.bytes controller.quorum.fetch.snapshot.max.bytes
        controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms
        controller.quorum.voters controller.quota.window.num controller.quota.window.size.seconds
        controller.socket.timeout.ms early.start.listeners initial.broker.registration.timeout.ms
        internal.metadata.delete.delay.millis internal.metadata.log.segment.bytes
        internal.metadata.max.batch.size.in.bytes metadata.log.dir metadata.log.max.record.bytes.between.snapshots
        metadata.log.max.snapshot.interval.ms metadata.log.segment.bytes metadata.log.segment.ms
        metadata.max.idle.interval.ms metadata.max.retention.bytes metadata.max.retention.ms process.roles
        server.max.startup.time.ms
    """,
    "threads and purgatories: a broker is one process with one event loop": """
        background.threads delete.records.purgatory.purge.interval.requests fetch.purgatory.purge.interval.requests
        group.coordinator.background.threads group.coordinator.threads log.cleaner.threads num.io.threads
        num.network.threads num.replica.alter.log.dirs.threads
        producer.purgatory.purge.interval.requests remote.log.reader.threads share.coordinator.threads
        share.fetch.purgatory.purge.interval.requests
    """,
    "metrics of the JVM": """
        kafka.metrics.polling.interval.secs kafka.metrics.reporters metric.reporters metrics.num.samples
        metrics.recording.level metrics.sample.window.ms
    """,
    "encryption and authentication: only PLAINTEXT listeners are served": """
        connection.failed.authentication.delay.ms connections.max.reauth.ms
        delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms delegation.token.max.lifetime.ms
        delegation.token.secret.key principal.builder.class sasl.client.callback.handler.class
        sasl.enabled.mechanisms sasl.jaas.config sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
        sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
        sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class sasl.login.class
        sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
        sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
        sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism.controller.protocol
        sasl.mechanism.inter.broker.protocol sasl.oauthbearer.assertion.algorithm
        sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
        sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
        sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
        sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
        sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
        sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
        sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
        sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
        sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope
        sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url
        sasl.server.callback.handler.class sasl.server.max.receive.size security.inter.broker.protocol
        sasl.oauthbearer.allow.unverified.audience sasl.oauthbearer.allow.unverified.issuer
        security.providers ssl.allow.dn.changes ssl.allow.san.changes ssl.cipher.suites ssl.client.auth
        ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password
        ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location
        ssl.keystore.password ssl.keystore.type ssl.principal.mapping.rules ssl.protocol ssl.provider
        ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates
        ssl.truststore.location ssl.truststore.password ssl.truststore.type
    """,
    "tiered storage": """
        follower.fetch.last.tiered.offset.enable log.remote.copy.lag.bytes log.remote.copy.lag.ms
        remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms
        remote.log.index.file.cache.total.size.bytes remote.log.index.file.cache.ttl.ms
        remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
        remote.log.manager.copy.quota.window.num remote.log.manager.copy.quota.window.size.seconds
        remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
        remote.log.manager.fetch.quota.window.num remote.log.manager.fetch.quota.window.size.seconds
        remote.log.manager.follower.thread.pool.size remote.log.manager.task.interval.ms
        remote.log.manager.task.retry.backoff.max.ms remote.log.manager.task.retry.backoff.ms
        remote.log.manager.task.retry.jitter remote.log.manager.thread.pool.size
        remote.log.metadata.custom.metadata.max.bytes remote.log.metadata.manager.class.name
        remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix
        remote.log.metadata.manager.listener.name remote.log.reader.max.pending.tasks
        remote.log.storage.manager.class.name remote.log.storage.manager.class.path
        remote.log.storage.manager.impl.prefix remote.log.storage.system.enable
    """,
    "retries of what waits here": """
        add.partitions.to.txn.retry.backoff.ms
    """,
    "the new consumer, share and streams groups": """
        errors.deadletterqueue.auto.create.topics.enable errors.deadletterqueue.topic.name.prefix
        group.consumer.assignor.offload.enable group.share.assignor.offload.enable group.share.dlq.manager.class.name
        group.streams.acceptable.recovery.lag group.streams.assignor.offload.enable group.streams.assignors
        group.streams.max.warmup.replicas group.streams.min.task.offset.interval.ms group.streams.num.warmup.replicas
        group.streams.rack.aware.assignment.tags group.streams.task.offset.interval.ms
        group.streams.topology.description.plugin.class
        group.consumer.assignment.interval.ms group.consumer.assignors group.consumer.heartbeat.interval.ms
        group.consumer.max.assignment.interval.ms group.consumer.max.heartbeat.interval.ms
        group.consumer.max.session.timeout.ms group.consumer.max.size group.consumer.migration.policy
        group.consumer.min.assignment.interval.ms group.consumer.min.heartbeat.interval.ms
        group.consumer.min.session.timeout.ms group.consumer.regex.refresh.interval.ms
        group.consumer.session.timeout.ms group.coordinator.append.linger.ms
        group.coordinator.cached.buffer.max.bytes group.coordinator.rebalance.protocols
        group.share.assignment.interval.ms group.share.assignors group.share.delivery.count.limit
        group.share.heartbeat.interval.ms group.share.initialize.retry.interval.ms
        group.share.max.assignment.interval.ms group.share.max.delivery.count.limit
        group.share.max.heartbeat.interval.ms group.share.max.partition.max.record.locks
        group.share.max.record.lock.duration.ms group.share.max.session.timeout.ms group.share.max.share.sessions
        group.share.max.size group.share.min.assignment.interval.ms group.share.min.delivery.count.limit
        group.share.min.heartbeat.interval.ms group.share.min.partition.max.record.locks
        group.share.min.record.lock.duration.ms group.share.min.session.timeout.ms
        group.share.partition.max.record.locks group.share.persister.class.name group.share.record.lock.duration.ms
        group.share.session.timeout.ms group.streams.assignment.interval.ms group.streams.heartbeat.interval.ms
        group.streams.initial.rebalance.delay.ms group.streams.max.assignment.interval.ms
        group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms group.streams.max.size
        group.streams.max.standby.replicas group.streams.min.assignment.interval.ms
        group.streams.min.heartbeat.interval.ms group.streams.min.session.timeout.ms
        group.streams.num.standby.replicas group.streams.session.timeout.ms share.coordinator.append.linger.ms
        share.coordinator.cached.buffer.max.bytes share.coordinator.cold.partition.snapshot.interval.ms
        share.coordinator.load.buffer.size share.coordinator.snapshot.update.records.per.snapshot
        share.coordinator.state.topic.compression.codec share.coordinator.state.topic.min.isr
        share.coordinator.state.topic.num.partitions share.coordinator.state.topic.prune.interval.ms
        share.coordinator.state.topic.replication.factor share.coordinator.state.topic.segment.bytes
        share.coordinator.write.timeout.ms
    """,
    "replication between brokers, and quotas": """
        quota.window.num quota.window.size.seconds unclean.leader.election.interval.ms
    """,
    "Java classes and the rest": """
        alter.config.policy.class.name authorizer.class.name client.quota.callback.class config.providers
        create.topic.policy.class.name num.replica.fetchers telemetry.max.bytes unstable.api.versions.enable
        unstable.feature.versions.enable
    """,
    _BEFORE_4: """
        zookeeper.max.in.flight.requests zookeeper.metadata.migration.enable
        zookeeper.metadata.migration.min.batch.size zookeeper.clientCnxnSocket
        zookeeper.ssl.keystore.type zookeeper.ssl.truststore.password zookeeper.ssl.truststore.type
        zookeeper.ssl.protocol zookeeper.ssl.enabled.protocols zookeeper.ssl.cipher.suites
        zookeeper.ssl.crl.enable zookeeper.ssl.ocsp.enable
        control.plane.listener.name inter.broker.protocol.version
        log.message.format.version log.message.downconversion.enable log.message.timestamp.difference.max.ms
        eligible.leader.replicas.enable offsets.commit.required.acks transactional.id.expiration.enable
        group.coordinator.new.enable group.consumer.enable group.share.enable unstable.metadata.versions.enable
        password.encoder.secret password.encoder.old.secret password.encoder.keyfactory.algorithm
        password.encoder.cipher.algorithm password.encoder.key.length password.encoder.iterations
    """,
}

_OLD_NAMES: Final = """
    auto.include.jmx.reporter group.share.max.groups share.fetch.max.fetch.records
    controlled.shutdown.max.retries controlled.shutdown.retry.backoff.ms controller.message.queue.size
    delegation.token.master.key kafka.csv.metrics.dir kafka.csv.metrics.reporter.enabled
    leader.imbalance.per.broker.percentage log.flush.interval.ms.per.topic log.retention.bytes.per.topic
    log.retention.hours.per.topic log.roll.hours.per.topic log.segment.bytes.per.topic max.id.map.snapshots
    metadata.log.segment.min.bytes producer.metrics.enable quota.consumer.default quota.producer.default
    replica.lag.max.messages zookeeper.sync.time.ms
"""

OLD: Final[Mapping[str, str | None]] = {
    **dict.fromkeys(_OLD_NAMES.split()),
    "advertised.host.name": "advertised.listeners",
    "advertised.port": "advertised.listeners",
    "host.name": "listeners",
    "log.cleanup.interval.mins": "log.retention.check.interval.ms",
    "port": "listeners",
}
"""Names that only older brokers of Kafka knew, with the present name of the same thing if there is one."""

WITHOUT_EFFECT: Final = {
    **{name: subject for subject, names in _BY_SUBJECT.items() for name in names.split()},
    **dict.fromkeys(OLD, "what only older versions had"),
}
"""Accepted names, each with the subject that says why it has no effect."""

PLUGINS: Final = (
    *("broker.interceptor.", "kafka.ganglia.metrics.", "kafka.timeline.metrics.", "metrics.jmx."),
    *(f"{name.rpartition('.class')[0]}." for name in WITHOUT_EFFECT if name.endswith((".class", ".class.name"))),
)
"""The beginnings of settings of plugins where they are as some of Kafka's own: what stands below the name of a class
that Kafka loads is that class's, such as `client.quota.callback.static.produce`."""

PRESENT: Final = frozenset(
    name for subject, names in _BY_SUBJECT.items() if subject is not _BEFORE_4 for name in names.split()
)
"""Those that Kafka's brokers still know."""

SENSITIVE: Final = frozenset(
    name for name in WITHOUT_EFFECT
    if name.endswith(("password", ".secret", "secret.key", "passphrase", "jaas.config", "master.key"))
    or name in ("ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.truststore.certificates")
)  # fmt: skip

_DYNAMIC_NAMES: Final = """
    background.threads config.providers follower.fetch.last.tiered.offset.enable
    group.consumer.assignment.interval.ms
    group.coordinator.cached.buffer.max.bytes group.share.assignment.interval.ms
    group.streams.assignment.interval.ms log.cleaner.threads metric.reporters
    num.io.threads num.network.threads num.replica.fetchers
    principal.builder.class remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms
    remote.log.index.file.cache.total.size.bytes remote.log.manager.copier.thread.pool.size
    remote.log.manager.copy.max.bytes.per.second remote.log.manager.expiration.thread.pool.size
    remote.log.manager.fetch.max.bytes.per.second remote.log.manager.follower.thread.pool.size
    remote.log.reader.threads sasl.enabled.mechanisms
    sasl.jaas.config sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
    sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
    sasl.kerberos.ticket.renew.window.factor sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
    sasl.login.refresh.window.factor sasl.login.refresh.window.jitter sasl.mechanism.inter.broker.protocol
    share.coordinator.cached.buffer.max.bytes ssl.cipher.suites ssl.client.auth ssl.enabled.protocols
    ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm
    ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type
    ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm
    ssl.truststore.certificates ssl.truststore.location ssl.truststore.password ssl.truststore.type
"""

DYNAMIC: Final = frozenset(_DYNAMIC_NAMES.split())
"""Settings that Kafka lets an administrator change on a running broker: accepted, without effect."""

_LISTENER_PREFIX: Final = "listener.name."


def without_effect(name: str) -> bool:
    """Returns whether Kafka knows the name, as it is or for one listener (`listener.name.NAME.SETTING`)."""
    if name in WITHOUT_EFFECT:
        return True
    if not name.startswith(_LISTENER_PREFIX):
        return False
    below = name[len(_LISTENER_PREFIX) :].partition(".")[2]
    parts = below.split(".")
    # A mechanism may stand between the listener and the setting: listener.name.x.plain.sasl.jaas.config.
    candidates = (below, ".".join(parts[1:]))
    limits = below.startswith("max.connection") and below != "max.connections"
    return limits or any(name in WITHOUT_EFFECT for name in candidates)


def _set(value: str) -> bool:
    return bool(value.strip())


def _true(value: str) -> bool:
    return value.strip().lower() == "true"


_REFUSED: Final[dict[str, tuple[Callable[[str], bool], str]]] = {
    "authorizer.class.name": (_set, "access control is not offered, and without it everybody may do everything"),
    "create.topic.policy.class.name": (_set, "policies in Java cannot be run, so topics would be created unchecked"),
    "alter.config.policy.class.name": (_set, "policies in Java cannot be run, so settings would be changed unchecked"),
    "client.quota.callback.class": (_set, "quota callbacks in Java cannot be run, so quotas would not hold"),
    "config.providers": (_set, "values from config providers would not be filled in"),
    "remote.log.storage.system.enable": (_true, "tiered storage is not offered"),
    "security.inter.broker.protocol": (
        lambda value: value.strip().upper() not in ("", "PLAINTEXT"), "only PLAINTEXT is served"
    ),
    "process.roles": (
        lambda value: "broker" not in value.replace(",", " ").split(),
        "a controller of its own is not needed: each broker can be it",
    ),
}  # fmt: skip


def refusals(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings that must not be accepted silently, with the reasons."""
    return {name: reason for name, (asks, reason) in _REFUSED.items() if name in settings and asks(settings[name])}
