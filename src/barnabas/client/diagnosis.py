"""Why a client cannot connect: each stage from the name to the cluster, checked one by one, with the way out.

    bootstrap address: dns, tcp, protocol (Kafka? TLS? something else?), versions
    cluster: metadata, controller
    each advertised listener: dns, tcp, protocol, is it the same broker of the same cluster?
    with `write`: a temporary topic, a record there and back, the broker's clock against ours

`diagnose` yields checks while it works, so that a slow stage shows what came before it.
"""

import socket
import time
from collections.abc import Generator, Iterator
from typing import Final, NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.connection import Connection, Handshake
from barnabas.client.core.addresses import parse_bootstrap
from barnabas.client.deadline import Deadline
from barnabas.client.errors import Attempt, ClientError, ConnectionLost
from barnabas.client.reasons import describe, hint_for
from barnabas.errors import InvalidRequest, KafkaError, UnsupportedVersion
from barnabas.protocol.apis import ApiKey, message_classes
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse

__all__ = ["Check", "diagnose", "tls_name"]

NEEDED: Final = (
    ApiKey.METADATA,
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
)
SLOW_MS: Final = 1000.0
SKEW_MAX_MS: Final = 5_000
BROKER_RESOURCE: Final = 4

OK: Final = "ok"
WARNING: Final = "warning"
FAILED: Final = "failed"


class Check(NamedTuple):
    """One finding. `hint` says what to do about what is not ok."""

    name: str
    target: str
    status: str
    """`ok`, `warning` or `failed`."""
    detail: str
    hint: str = ""
    elapsed_ms: float = 0.0


def diagnose(bootstrap: str, *, timeout_s: float = 5.0, write: bool = False) -> Iterator[Check]:
    """Every check that can be made; at most `timeout_s` for each stage."""
    reached: list[Connection] = []
    for host, port in parse_bootstrap(bootstrap):
        yield from _check_address(host, port, timeout_s, reached)
    try:
        if not reached:
            return
        answer = yield from _check_cluster(reached[0], timeout_s)
        if answer is None:
            return
        for connection in reached[1:]:
            yield from _same_cluster(connection, answer, timeout_s)
        usable = True
        for broker in answer.brokers:
            for check in _check_advertised(broker.node_id, broker.host, broker.port, reached[0], answer, timeout_s):
                usable = usable and check.status != FAILED
                yield check
        if write and usable:
            yield from _check_round_trip(bootstrap, timeout_s)
    finally:
        for connection in reached:
            connection.close()


# --- one address ----------------------------------------------------------------------------------------------------


def _check_address(host: str, port: int, timeout_s: float, reached: list[Connection]) -> Iterator[Check]:
    target = f"{host}:{port}"
    started = time.perf_counter()
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        yield Check("dns", target, FAILED, f"{host} does not resolve: {describe(error)}", hint_for(error), _ms(started))
        return
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    elapsed = _ms(started)
    slow = elapsed > SLOW_MS
    yield Check(
        "dns",
        target,
        WARNING if slow else OK,
        f"resolves to {', '.join(addresses)}",
        "name resolution is slow: every connection of every client waits for it" if slow else "",
        elapsed,
    )
    yield from _check_protocol(host, port, addresses, timeout_s, reached)


def _check_protocol(
    host: str, port: int, addresses: list[str], timeout_s: float, reached: list[Connection]
) -> Iterator[Check]:
    target = f"{host}:{port}"
    try:
        connection = Connection.open(host, port, client_id="barnabas-doctor", timeout_s=timeout_s)
    except ConnectionLost as error:
        for attempt in error.attempts:
            yield _failure(attempt, host, port, timeout_s)
        return
    except (ClientError, KafkaError) as error:
        yield Check("protocol", target, FAILED, str(error))
        return
    yield from _connected(target, connection.handshake, addresses)
    versions = _check_versions(target, connection)
    yield versions
    if versions.status == OK:
        reached.append(connection)
    else:
        connection.close()


def _failure(attempt: Attempt, host: str, port: int, timeout_s: float) -> Check:
    if attempt.stage != "version":
        return Check(attempt.stage, attempt.address, FAILED, attempt.error, attempt.hint, attempt.elapsed_ms)
    tls = tls_name(host, port, timeout_s)
    if tls:
        hint = "use the port of a PLAINTEXT listener: this client speaks plaintext, the listener is SSL or SASL_SSL"
        return Check("protocol", attempt.address, FAILED, f"the port speaks {tls}, not plaintext Kafka", hint)
    hint = attempt.hint or "the port is open, but what listens there is not a Kafka broker"
    if "closed" in attempt.error or "reset" in attempt.error:
        hint = "not a Kafka port, or a SASL listener, or the broker's connection limit is reached (see its log)"
    return Check("protocol", attempt.address, FAILED, f"no answer of a Kafka broker: {attempt.error}", hint)


def _connected(target: str, handshake: Handshake, addresses: list[str]) -> Iterator[Check]:
    refused = addresses[: addresses.index(handshake.ip)] if handshake.ip in addresses else []
    if refused:
        yield Check(
            "tcp",
            target,
            WARNING,
            f"connected to {handshake.ip}, but not to {', '.join(refused)}",
            "clients that try only the first address fail: use the address itself, or listen on all",
            handshake.tcp_ms,
        )
    else:
        yield Check("tcp", target, OK, f"connected to {handshake.ip}", "", handshake.tcp_ms)


def _check_versions(target: str, connection: Connection) -> Check:
    missing = []
    for key in NEEDED:
        try:
            connection.version_of(message_classes(key)[0])
        except UnsupportedVersion as error:
            missing.append(str(error).removeprefix(f"broker {target} "))
    served = len(connection.versions)
    elapsed = connection.handshake.version_ms
    if missing:
        hint = "the broker is too old or too new for this client, or it is a KRaft controller (use a broker's port)"
        return Check("versions", target, FAILED, "; ".join(missing), hint, elapsed)
    features = ", ".join(f"{f.name}={f.max_version_level}" for f in connection.api_versions.finalized_features)
    return Check("versions", target, OK, f"{served} APIs{', ' + features if features else ''}", "", elapsed)


def tls_name(host: str, port: int, timeout_s: float) -> str:
    """`TLSv1.3` if the port answers a TLS handshake, otherwise an empty string."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), timeout_s) as plain:
            plain.settimeout(timeout_s)
            with context.wrap_socket(plain, server_hostname=host) as secured:
                return secured.version() or "TLS"
    except ssl.SSLError as error:
        # an alert is an answer in TLS: the other side speaks it, and wants another version or a certificate
        return "TLS" if "ALERT" in str(error.reason or "").upper() else ""
    except (OSError, ValueError):
        return ""


# --- the cluster ----------------------------------------------------------------------------------------------------


def _metadata(connection: Connection, timeout_s: float) -> MetadataResponse:
    version = connection.version_of(MetadataRequest)
    answer: MetadataResponse = connection.call(
        MetadataRequest(topics=[], allow_auto_topic_creation=False), Deadline(timeout_s), version=version
    )
    return answer


def _check_cluster(connection: Connection, timeout_s: float) -> Generator[Check, None, MetadataResponse | None]:
    started = time.perf_counter()
    try:
        answer = _metadata(connection, timeout_s)
    except (ClientError, KafkaError) as error:
        yield Check("metadata", connection.address, FAILED, str(error), "see the broker's log", _ms(started))
        return None
    brokers = ", ".join(f"{b.node_id} at {b.host}:{b.port}" for b in answer.brokers)
    if not answer.brokers:
        yield Check(
            "metadata", connection.address, FAILED, "the answer names no broker", "the broker is still starting"
        )
        return None
    detail = f"cluster {answer.cluster_id}, brokers {brokers}"
    yield Check("metadata", connection.address, OK, detail, "", _ms(started))
    if answer.controller_id < 0:
        hint = "topics cannot be created and leaders not elected until there is one"
        yield Check("controller", connection.address, FAILED, "the cluster has no controller", hint)
    return answer


def _same_cluster(connection: Connection, expected: MetadataResponse, timeout_s: float) -> Iterator[Check]:
    try:
        answer = _metadata(connection, timeout_s)
    except (ClientError, KafkaError) as error:
        yield Check("cluster", connection.address, FAILED, str(error))
        return
    if answer.cluster_id != expected.cluster_id:
        detail = f"belongs to cluster {answer.cluster_id}, the first address to {expected.cluster_id}"
        yield Check("cluster", connection.address, FAILED, detail, "give bootstrap addresses of one cluster only")


def _check_advertised(
    node_id: int, host: str, port: int, first: Connection, expected: MetadataResponse, timeout_s: float
) -> Iterator[Check]:
    """Clients use the bootstrap address once; from then on they connect to what the brokers advertise."""
    target = f"broker {node_id} at {host}:{port}"
    remedy = f"set advertised.listeners of broker {node_id} to an address that clients can reach"
    started = time.perf_counter()
    try:
        connection = Connection.open(host, port, client_id="barnabas-doctor", timeout_s=timeout_s)
    except (ClientError, KafkaError) as error:
        attempts = getattr(error, "attempts", ())
        detail = "; ".join(f"{attempt.stage}: {attempt.error}" for attempt in attempts) or str(error)
        yield Check("advertised", target, FAILED, detail, _advice(host, first, remedy), _ms(started))
        return
    with connection:
        try:
            problem = _identity_problem(connection, node_id, expected, timeout_s)
        except (ClientError, KafkaError) as error:
            yield Check("advertised", target, FAILED, str(error), remedy, _ms(started))
            return
    if problem:
        yield Check("advertised", target, FAILED, problem, remedy, _ms(started))
    else:
        yield Check("advertised", target, OK, "reachable, and it is that broker", "", _ms(started))


def _advice(host: str, first: Connection, remedy: str) -> str:
    loopback = host in ("localhost", "127.0.0.1", "::1", "0.0.0.0")
    if loopback and first.handshake.ip not in ("127.0.0.1", "::1"):
        return f"the broker tells clients to connect to their own machine; {remedy}"
    return f"clients connect to what the broker advertises, not to the bootstrap address; {remedy}"


def _identity_problem(connection: Connection, node_id: int, expected: MetadataResponse, timeout_s: float) -> str:
    """A broker answers for its own settings only: so one can tell who it is."""
    answer = _metadata(connection, timeout_s)
    if answer.cluster_id != expected.cluster_id:
        return f"a broker of another cluster answers there: {answer.cluster_id}, not {expected.cluster_id}"
    resource = DescribeConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name=str(node_id), configuration_keys=["node.id", "broker.id"]
    )
    response = connection.call(DescribeConfigsRequest(resources=[resource]), Deadline(timeout_s))
    result = response.results[0]
    if result.error_code == InvalidRequest.code:
        return "another broker of the cluster answers there"
    named = {config.value for config in result.configs if config.value}
    if not result.error_code and named and str(node_id) not in named:
        return f"broker {', '.join(sorted(named))} answers there"
    return ""


# --- a record there and back ----------------------------------------------------------------------------------------


def _check_round_trip(bootstrap: str, timeout_s: float) -> Iterator[Check]:
    from barnabas.client.round_trip import round_trip

    with Cluster(bootstrap, client_id="barnabas-doctor", timeout_s=timeout_s) as cluster:
        started = time.perf_counter()
        try:
            result = round_trip(cluster, timeout_s)
        except (ClientError, KafkaError) as error:
            yield Check("produce", "temporary topic", FAILED, str(error), "see the broker's log", _ms(started))
            return
    text = f"a record was acknowledged in {result.produce_ms:.1f} ms and read back in {result.fetch_ms:.1f} ms"
    yield Check("produce", result.topic, OK, text, "", result.produce_ms + result.fetch_ms)
    skew = result.skew_ms
    if abs(skew) > SKEW_MAX_MS:
        ahead = "ahead of" if skew > 0 else "behind"
        hint = "set both clocks by NTP: timestamps, retention and the check of record times go by them"
        yield Check("clock", result.topic, FAILED, f"the broker's clock is {abs(skew) / 1000:.1f} s {ahead} ours", hint)
    else:
        yield Check("clock", result.topic, OK, f"the broker's clock is within {abs(skew)} ms of ours")


def _ms(started: float) -> float:
    return (time.perf_counter() - started) * 1e3
