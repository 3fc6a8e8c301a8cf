"""Checks each stage from a host's name to the cluster, with a hint for each failure.

    bootstrap address: dns, tcp, protocol (Kafka? TLS? something else?), versions
    cluster: metadata, controller
    each advertised listener: dns, tcp, protocol, and whether it is the same broker of the same cluster
    with `write`: a record written to a temporary topic and read back, the broker's clock

`diagnose` yields each check when it is made, so that a slow stage does not hide those before it.
"""

import socket
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from barnabas.client.settings.admin import AdminSettings
from barnabas.client.settings.network import network_client_settings
from barnabas.client.settings.tls import ssl_context
from barnabas.connection.broker.addresses import parse_bootstrap
from barnabas.connection.broker.client_request import choose_version
from barnabas.connection.drivers.os_errors import describe, hint_for
from barnabas.connection.drivers.sync import SyncDriver
from barnabas.connection.network_client import ANY, NetworkClient
from barnabas.connection.retry import send_with_retries
from barnabas.errors import Attempt, BrokerUnreachable, ClientError, InvalidRequest, KafkaError, UnsupportedVersion
from barnabas.protocol.apis import ApiKey, message_classes
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.schema import Request
from barnabas.records.compiled.installation import HOW_TO_COMPILE, describe_installation, is_compiled

__all__ = [
    "BROKER_RESOURCE",
    "FAILED",
    "OK",
    "SKEW_MAX_MS",
    "WARNING",
    "Check",
    "diagnose",
    "hasty_settings",
    "probe_for",
    "tls_name",
]

_CONSUMER_GROUP_HEARTBEAT: Final = 68
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
SILENT: Final = "connected, but no answer: the broker is starting (its log says what it waits for), or it hangs"
SKEW_MAX_MS: Final = 5_000
BROKER_RESOURCE: Final = 4

OK: Final = "ok"
WARNING: Final = "warning"
FAILED: Final = "failed"


class Check(NamedTuple):
    """The result of one check. `hint` says what to do if it is not ok."""

    name: str
    target: str
    status: str
    """`ok`, `warning` or `failed`."""
    detail: str
    hint: str = ""
    elapsed_ms: float = 0.0


class Probe:
    """A client of one address."""

    def __init__(self, address: str, settings: AdminSettings, timeout_s: float) -> None:
        self.address = address
        self.ip = ""
        """The IP address that took the connection, if any."""
        self.version_ms = 0.0
        self._timeout_s = timeout_s
        self._client = NetworkClient(
            network_client_settings(settings, allow_auto_topic_creation=False), time.monotonic()
        )
        self._driver = SyncDriver(self._client, ssl_context=ssl_context(settings), name="doctor")

    def send(self, request: Request) -> Any:
        """Returns the response. Raises KafkaError, ClientError."""
        driver, timeout_s = self._driver, self._timeout_s
        return driver.wait_for(driver.run(lambda: send_with_retries(self._client, request, ANY, timeout_s=timeout_s)))

    def versions(self) -> ApiVersionsResponse:
        """Returns the versions that the broker serves. Raises KafkaError, ClientError."""
        from barnabas.version import __version__

        started = time.perf_counter()
        request = ApiVersionsRequest(client_software_name="barnabas", client_software_version=__version__)
        response: ApiVersionsResponse = self.send(request)
        self.version_ms = _ms(started)
        return response

    def metadata(self) -> MetadataResponse:
        """Returns the brokers that the broker knows. Raises KafkaError, ClientError."""
        response: MetadataResponse = self.send(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        return response

    def close(self) -> None:
        self._driver.close()

    def __enter__(self) -> "Probe":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def probe_for(host: str, port: int, given: Mapping[str, object], timeout_s: float) -> Probe:
    """Returns a client of one address, which connects at its first request. `given` are settings of clients."""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return Probe(address, AdminSettings(hasty_settings(given, address, timeout_s)), timeout_s)


def hasty_settings(given: Mapping[str, object], bootstrap: str, timeout_s: float) -> dict[str, object]:
    """Returns the settings of a client that gives up soon."""
    return {
        **given,
        "bootstrap.servers": bootstrap,
        "bootstrap.timeout.ms": 0,
        "client.id": "barnabas-doctor",
        "socket.connection.setup.timeout.ms": int(timeout_s * 900),
    }


def diagnose(
    bootstrap: str, given: Mapping[str, object] | None = None, *, timeout_s: float = 5.0, write: bool = False
) -> Iterator[Check]:
    """Yields all checks that can be made, each within `timeout_s`. `given` are settings, such as those of TLS and
    SASL."""
    with Diagnosis(bootstrap, given or {}, timeout_s) as diagnosis:
        yield from diagnosis.checks(write=write)


class Diagnosis:
    """Makes the checks, and keeps the clients of the bootstrap addresses that it reached."""

    def __init__(self, bootstrap: str, given: Mapping[str, object], timeout_s: float) -> None:
        self._bootstrap = bootstrap
        self._given = given
        self._timeout_s = timeout_s
        self._reached: list[Probe] = []

    def __enter__(self) -> "Diagnosis":
        return self

    def __exit__(self, *_: object) -> None:
        for probe in self._reached:
            probe.close()

    def checks(self, *, write: bool) -> Iterator[Check]:
        yield _check_installation()
        for host, port in parse_bootstrap(self._bootstrap):
            yield from self._check_address(host, port)
        if not self._reached:
            return
        answer = yield from _check_cluster(self._reached[0])
        if answer is None:
            return
        for probe in self._reached[1:]:
            yield from _same_cluster(probe, answer)
        usable = True
        for broker in answer.brokers:
            for check in self._check_advertised(broker.node_id, broker.host, broker.port, answer):
                usable = usable and check.status != FAILED
                yield check
        if write and usable:
            yield from self._check_round_trip()

    def _probe(self, host: str, port: int) -> Probe:
        return probe_for(host, port, self._given, self._timeout_s)

    # --- one address ------------------------------------------------------------------------------------------------

    def _check_address(self, host: str, port: int) -> Iterator[Check]:
        target = f"{host}:{port}"
        started = time.perf_counter()
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            yield Check(
                "dns", target, FAILED, f"{host} does not resolve: {describe(error)}", hint_for(error), _ms(started)
            )
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
        ip = yield from self._check_tcp(target, port, addresses)
        if ip:
            yield from self._check_protocol(host, port, ip)

    def _check_tcp(self, target: str, port: int, addresses: list[str]) -> Generator[Check, None, str]:
        """Returns the first IP address that takes a connection, or an empty text."""
        refused: list[Check] = []
        for ip in addresses:
            started = time.perf_counter()
            try:
                socket.create_connection((ip, port), self._timeout_s).close()
            except OSError as error:
                address = target if ip in target else f"{target} ({ip})"
                refused.append(Check("tcp", address, FAILED, describe(error), hint_for(error), _ms(started)))
                continue
            if refused:
                others = ", ".join(addresses[: len(refused)])
                hint = "clients that try only the first address fail: use the address itself, or listen on all"
                yield Check("tcp", target, WARNING, f"connected to {ip}, but not to {others}", hint, _ms(started))
            else:
                yield Check("tcp", target, OK, f"connected to {ip}", "", _ms(started))
            return ip
        yield from refused
        return ""

    def _check_protocol(self, host: str, port: int, ip: str) -> Iterator[Check]:
        probe = self._probe(host, port)
        probe.ip = ip
        check: Check
        try:
            check = _check_versions(probe, probe.versions())
        except ClientError as error:
            attempt = error.attempts[-1] if error.attempts else Attempt(probe.address, "version", str(error), "")
            check = self._failure(attempt, host, port)
        except KafkaError as error:
            check = Check("protocol", probe.address, FAILED, str(error))
        if check.status == OK:
            self._reached.append(probe)
        else:
            probe.close()
        yield check

    def _failure(self, attempt: Attempt, host: str, port: int) -> Check:
        if attempt.stage != "version":
            return Check(attempt.stage, attempt.address, FAILED, attempt.error, attempt.hint, attempt.elapsed_ms)
        tls = tls_name(host, port, self._timeout_s)
        if tls:
            hint = "set security.protocol to SSL or SASL_SSL, or use the port of a PLAINTEXT listener"
            return Check("protocol", attempt.address, FAILED, f"the port speaks {tls}, not plaintext Kafka", hint)
        hint = attempt.hint or "the port is open, but what listens there is not a Kafka broker"
        if "closed" in attempt.error or "reset" in attempt.error:
            hint = "not a Kafka port, or a SASL listener, or the broker's connection limit is reached (see its log)"
        return Check("protocol", attempt.address, FAILED, f"no answer of a Kafka broker: {attempt.error}", hint)

    # --- the cluster ------------------------------------------------------------------------------------------------

    def _check_advertised(self, node_id: int, host: str, port: int, expected: MetadataResponse) -> Iterator[Check]:
        """Checks an advertised address: after the bootstrap address clients connect to advertised ones only."""
        target = f"broker {node_id} at {host}:{port}"
        started = time.perf_counter()
        with self._probe(host, port) as probe:
            try:
                problem = _identity_problem(probe, node_id, expected)
            except BrokerUnreachable as error:
                detail = "; ".join(f"{attempt.stage}: {attempt.error}" for attempt in error.attempts) or str(error)
                elapsed = _ms(started)
                hint = SILENT if _is_silent(error) else _hint(host, self._reached[0], self._remedy(node_id, host, port))
                yield Check("advertised", target, FAILED, detail, hint, elapsed)
                return
            except (ClientError, KafkaError) as error:
                problem = str(error)
        if problem:
            elapsed = _ms(started)
            yield Check("advertised", target, FAILED, problem, self._remedy(node_id, host, port), elapsed)
        else:
            yield Check("advertised", target, OK, "reachable, and it is that broker", "", _ms(started))

    def _remedy(self, node_id: int, host: str, port: int) -> str:
        """Returns what makes a broker tell an address that leads to it, instead of this one. A bootstrap address that
        has led to it does, such as the published port of its container."""
        for probe in self._reached:
            with suppress(ClientError, KafkaError):
                settings = _settings_of(probe, node_id, ["advertised.listeners", "listeners"])
                listeners = (settings.get("advertised.listeners") or settings.get("listeners", "")).split(",")
                told = [each for each in listeners if each.endswith(f"//{host}:{port}")]
                for listener in told or [each for each in listeners if each.endswith(f":{port}")]:
                    entry = f"{listener.partition('://')[0].strip()}://{probe.address}"
                    others = "" if len(listeners) == 1 else ", beside the entries of its other listeners"
                    return (
                        f"start broker {node_id} with advertised.listeners={entry}{others} "
                        "(BARNABAS_ADVERTISED_LISTENERS in its environment): this address leads to it from here"
                    )
        return f"set advertised.listeners of broker {node_id} to an address that clients can reach"

    def _check_round_trip(self) -> Iterator[Check]:
        from barnabas.client.diagnosis.round_trip import round_trip

        started = time.perf_counter()
        try:
            result = round_trip(hasty_settings(self._given, self._bootstrap, self._timeout_s), self._timeout_s)
        except (ClientError, KafkaError) as error:
            yield Check("produce", "temporary topic", FAILED, str(error), "see the broker's log", _ms(started))
            return
        text = f"a record was acknowledged in {result.produce_ms:.1f} ms and read back in {result.fetch_ms:.1f} ms"
        yield Check("produce", result.topic, OK, text, "", result.produce_ms + result.fetch_ms)
        skew = result.skew_ms
        if abs(skew) > SKEW_MAX_MS:
            ahead = "ahead of" if skew > 0 else "behind"
            hint = "set both clocks by NTP: timestamps, retention and the check of record times go by them"
            yield Check(
                "clock", result.topic, FAILED, f"the broker's clock is {abs(skew) / 1000:.1f} s {ahead} ours", hint
            )
        else:
            yield Check("clock", result.topic, OK, f"the broker's clock is within {abs(skew)} ms of ours")


# --- single checks ----------------------------------------------------------------------------------------------------


def _check_installation() -> Check:
    from barnabas.version import __version__

    status, hint = (OK, "") if is_compiled() else (WARNING, HOW_TO_COMPILE)
    return Check("install", f"barnabas {__version__}", status, describe_installation(), hint)


def _check_versions(probe: Probe, answer: ApiVersionsResponse) -> Check:
    served = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    missing = []
    for key in NEEDED:
        try:
            choose_version(served, message_classes(key)[0], probe.address)
        except UnsupportedVersion as error:
            missing.append(str(error).removeprefix(f"broker {probe.address} "))
    if missing:
        hint = "the broker is too old or too new for this client, or it is a KRaft controller (use a broker's port)"
        return Check("versions", probe.address, FAILED, "; ".join(missing), hint, probe.version_ms)
    features = ", ".join(f"{f.name}={f.max_version_level}" for f in answer.finalized_features)
    detail = f"{len(served)} APIs{', ' + features if features else ''}"
    if _CONSUMER_GROUP_HEARTBEAT not in served:
        # librdkafka waits for it without a word, and never asks: only the doctor can tell
        detail += "; no new consumer groups (KIP-848): clients need group.protocol=classic"
    return Check("versions", probe.address, OK, detail, "", probe.version_ms)


def tls_name(host: str, port: int, timeout_s: float) -> str:
    """Returns `TLSv1.3` or the like if the port answers a TLS handshake, otherwise an empty string."""
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
        # an alert is a TLS message: the other side speaks TLS, and wants another version or a certificate
        return "TLS" if "ALERT" in str(error.reason or "").upper() else ""
    except (OSError, ValueError):
        return ""


def _check_cluster(probe: Probe) -> Generator[Check, None, MetadataResponse | None]:
    started = time.perf_counter()
    try:
        answer = probe.metadata()
    except (ClientError, KafkaError) as error:
        yield Check("metadata", probe.address, FAILED, str(error), "see the broker's log", _ms(started))
        return None
    brokers = ", ".join(f"{b.node_id} at {b.host}:{b.port}" for b in answer.brokers)
    if not answer.brokers:
        yield Check("metadata", probe.address, FAILED, "the answer names no broker", "the broker is still starting")
        return None
    detail = f"cluster {answer.cluster_id}, brokers {brokers}"
    yield Check("metadata", probe.address, OK, detail, "", _ms(started))
    if answer.controller_id < 0:
        hint = "topics cannot be created and leaders not elected until there is one"
        yield Check("controller", probe.address, FAILED, "the cluster has no controller", hint)
    return answer


def _same_cluster(probe: Probe, expected: MetadataResponse) -> Iterator[Check]:
    try:
        answer = probe.metadata()
    except (ClientError, KafkaError) as error:
        yield Check("cluster", probe.address, FAILED, str(error))
        return
    if answer.cluster_id != expected.cluster_id:
        detail = f"belongs to cluster {answer.cluster_id}, the first address to {expected.cluster_id}"
        yield Check("cluster", probe.address, FAILED, detail, "give bootstrap addresses of one cluster only")


def _hint(host: str, first: Probe, remedy: str) -> str:
    loopback = host in ("localhost", "127.0.0.1", "::1", "0.0.0.0")
    if loopback and first.ip not in ("127.0.0.1", "::1"):
        return f"the broker tells clients to connect to their own machine; {remedy}"
    return f"clients connect to what the broker advertises, not to the bootstrap address; {remedy}"


def _is_silent(error: BrokerUnreachable) -> bool:
    """Returns whether a connection was made, and nothing came."""
    last = error.attempts[-1] if error.attempts else None
    return last is not None and last.stage == "version" and last.error.startswith(("timed out", "no answer"))


def _identity_problem(probe: Probe, node_id: int, expected: MetadataResponse) -> str:
    """Returns the reason why a broker is not the expected one, or an empty text. A broker answers for its own settings
    only, which identifies it."""
    answer = probe.metadata()
    if answer.cluster_id != expected.cluster_id:
        return f"a broker of another cluster answers there: {answer.cluster_id}, not {expected.cluster_id}"
    try:
        named = set(_settings_of(probe, node_id, ["node.id", "broker.id"]).values())
    except InvalidRequest:
        return "another broker of the cluster answers there"
    if named and str(node_id) not in named:
        return f"broker {', '.join(sorted(named))} answers there"
    return ""


def _settings_of(probe: Probe, node_id: int, names: list[str]) -> dict[str, str]:
    """Returns those settings of a broker that have a value. Raises InvalidRequest if another one answers."""
    resource = DescribeConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name=str(node_id), configuration_keys=names
    )
    (result,) = probe.send(DescribeConfigsRequest(resources=[resource])).results
    if result.error_code == InvalidRequest.code:
        raise InvalidRequest(result.error_message or "")
    return {config.name: config.value for config in result.configs if config.value}


def _ms(started: float) -> float:
    return (time.perf_counter() - started) * 1e3
