"""Settings that Barnabas does not have: Kafka's without use here, those that cannot be honoured, names of librdkafka
and of the Python clients."""

from typing import Final

__all__ = ["LIBRDKAFKA", "PYTHON_CLIENTS", "REFUSED", "WITHOUT_EFFECT", "refusal"]

WITHOUT_EFFECT: Final = frozenset(
    (
        "auto.include.jmx.reporter",
        "buffer.memory.allocation.strategy",
        "client.dns.lookup",
        "client.rack",  # of admins; producers and consumers have it
        "config.providers",
        "enable.metrics.push",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "sasl.login.class",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "security.providers",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    )
)
"""Settings of Kafka's Java clients about the JVM, or about things that need no setting here. They cause a warning."""

_KERBEROS: Final = "Kerberos is not supported; use sasl.mechanism PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"
_CALLABLE: Final = "give a function that returns a token as sasl.oauthbearer.token.provider"
_CLASS: Final = "a Java class cannot run here"
_SHARE: Final = "share groups are not supported"

REFUSED: Final = {
    "bootstrap.controllers": "give the brokers' addresses as bootstrap.servers",
    "group.remote.assignor": "members assign partitions here, by partition.assignment.strategy",
    "sasl.client.callback.handler.class": _CLASS,
    "sasl.login.callback.handler.class": _CLASS,
    "sasl.kerberos.kinit.cmd": _KERBEROS,
    "sasl.kerberos.min.time.before.relogin": _KERBEROS,
    "sasl.kerberos.service.name": _KERBEROS,
    "sasl.kerberos.ticket.renew.jitter": _KERBEROS,
    "sasl.kerberos.ticket.renew.window.factor": _KERBEROS,
    "sasl.oauthbearer.": _CALLABLE,
    "share.acknowledgement.mode": _SHARE,
    "share.acquire.mode": _SHARE,
    "ssl.engine.factory.class": f"{_CLASS}; give an ssl.SSLContext as ssl.context",
    "ssl.keystore.password": "key stores here are PEM files: give the key's password as ssl.key.password",
    "ssl.truststore.password": "trust stores here are PEM files, which have no password",
}
"""Settings of Kafka that cannot be honoured here, with what to do instead. A dot at the end stands for all names that
begin so."""


def refusal(name: str) -> str | None:
    """Returns the reason why a setting of Kafka cannot be honoured, with an alternative; None for all other names."""
    return REFUSED.get(name) or next(
        (reason for prefix, reason in REFUSED.items() if prefix.endswith(".") and name.startswith(prefix)), None
    )


LIBRDKAFKA: Final = {
    "auto.commit.enable": "enable.auto.commit is the setting",
    "batch.num.messages": "batches are bounded by batch.size alone",
    "compression.codec": "compression.type is the setting",
    "compression.level": "compression.gzip.level, compression.lz4.level or compression.zstd.level is the setting",
    "fetch.message.max.bytes": "max.partition.fetch.bytes is the setting",
    "fetch.wait.max.ms": "fetch.max.wait.ms is the setting",
    "max.in.flight": "max.in.flight.requests.per.connection is the setting",
    "message.max.bytes": "max.request.size is the setting",
    "message.send.max.retries": "retries is the setting",
    "message.timeout.ms": "delivery.timeout.ms is the setting",
    "metadata.broker.list": "bootstrap.servers is the setting",
    "oauth.cb": "sasl.oauthbearer.token.provider is the setting",
    "oauth_cb": "sasl.oauthbearer.token.provider is the setting",
    "partitioner": "partitioner.class is the setting",
    "queue.buffering.max.kbytes": "buffer.memory is the setting, in bytes",
    "queue.buffering.max.messages": "buffer.memory bounds what waits, in bytes",
    "queue.buffering.max.ms": "linger.ms is the setting",
    "request.required.acks": "acks is the setting",
    "sasl.mechanisms": "sasl.mechanism is the setting",
    "socket.receive.buffer.bytes": "receive.buffer.bytes is the setting",
    "socket.send.buffer.bytes": "send.buffer.bytes is the setting",
    "socket.timeout.ms": "request.timeout.ms is the setting",
    "ssl.ca.location": "ssl.truststore.location is the setting, a PEM file",
    "ssl.ca.pem": "ssl.truststore.certificates is the setting",
    "ssl.certificate.location": "ssl.keystore.location is the setting, a PEM file with certificates and key",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain is the setting",
    "ssl.key.location": "ssl.keystore.location is the setting, a PEM file with certificates and key",
    "ssl.key.pem": "ssl.keystore.key is the setting",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms is the setting",
}
"""librdkafka's names and what to use instead, for users of confluent-kafka."""

_NOT_NEEDED: Final = "it is not needed here, leave it out"
_NO_PROXY: Final = "proxies are not supported"

PYTHON_CLIENTS: Final = {
    "allow_auto_create_topics": "only a consumer has it; topics for records are created as the broker is set",
    "api_version": "it is not needed here, brokers are asked for their versions",
    "consumer_timeout_ms": "read with `for record in consumer.until_end()`, or poll(timeout=SECONDS) again and again",
    "default_offset_commit_callback": "give commit_async(callback=) a function",
    "enable_incremental_fetch_sessions": _NOT_NEEDED,
    "kafka_client": _NOT_NEEDED,
    "loop": "it is not needed here, a client uses the event loop that runs",
    "max_batch_size": "batch_size is the setting",
    "max_in_flight_requests_per_connection": "only a producer has it",
    "metric_group_prefix": "metrics() returns numbers, and nothing else is reported",
    "metrics_enabled": "metrics() returns numbers, and nothing else is reported",
    "proxy_url": _NO_PROXY,
    "rebalance_timeout_ms": "max_poll_interval_ms is the setting",
    "receive_message_max_bytes": "fetch_max_bytes bounds what a consumer fetches",
    "sasl_kerberos_domain_name": _KERBEROS,
    "sasl_kerberos_name": _KERBEROS,
    "sasl_oauth_token_provider": "sasl_oauthbearer_token_provider is the setting, a function that returns a token",
    "sasl_plain_password": "sasl_password is the setting",
    "sasl_plain_username": "sasl_username is the setting",
    "selector": _NOT_NEEDED,
    "socket_options": "send_buffer_bytes and receive_buffer_bytes are the settings",
    "socks5_proxy": _NO_PROXY,
    "ssl_cafile": "ssl_truststore_location is the setting, a PEM file",
    "ssl_certfile": "ssl_keystore_location is the setting, a PEM file with certificates and key",
    "ssl_check_hostname": "ssl_endpoint_identification_algorithm is the setting: '' does not check the name",
    "ssl_ciphers": "ssl_cipher_suites is the setting",
    "ssl_crlfile": "give an ssl.SSLContext that has loaded it as ssl_context",
    "ssl_keyfile": "ssl_keystore_location is the setting, a PEM file with certificates and key",
    "ssl_password": "ssl_key_password is the setting",
}
"""Names of kafka-python and aiokafka, where they are not Kafka's, and what to use instead."""
