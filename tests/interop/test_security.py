"""Our clients with TLS and SASL against Apache Kafka."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import barnabas
import barnabas.aio
from barnabas.client.errors import BrokerUnreachable
from barnabas.errors import SaslAuthenticationFailed, UnsupportedSaslMechanism
from stopwatch import Stopwatch

from .harness.broker import KAFKA_LIBS, KafkaBroker, free_port

pytestmark = pytest.mark.skipif(
    not any(KAFKA_LIBS.glob("kafka-tools-*.jar")) or shutil.which("java") is None or shutil.which("openssl") is None,
    reason="needs java, openssl and the jars of Apache Kafka (make interop-clients)",
)

PASSWORD = "alice-secret"
MODULE = "org.apache.kafka.common.security"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")


class SecureKafka(KafkaBroker):
    """Kafka with a listener for each security protocol."""

    name = "kafka with TLS and SASL"

    def __init__(self, directory: Path) -> None:
        self.ports = {name: free_port() for name in ("SSL", "SASL_PLAINTEXT", "SASL_SSL")}
        controller = free_port()
        super().__init__(directory)
        where = [f"PLAINTEXT://{self.bootstrap}", *(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items())]
        jaas = {"plain": f'{MODULE}.plain.PlainLoginModule required user_alice="{PASSWORD}";'}
        jaas |= {name.lower(): f"{MODULE}.scram.ScramLoginModule required;" for name in SCRAM}
        self._settings |= {
            "listeners": ",".join([*where, f"CONTROLLER://127.0.0.1:{controller}"]),
            "advertised.listeners": ",".join(where),
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listener.security.protocol.map": ",".join(
                ["CONTROLLER:PLAINTEXT", "PLAINTEXT:PLAINTEXT", *(f"{name}:{name}" for name in self.ports)]
            ),
            "sasl.enabled.mechanisms": ",".join(["PLAIN", *SCRAM]),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(directory / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(directory / "cert.pem"),
            "listener.name.ssl.ssl.client.auth": "required",
        }
        for listener in ("sasl_plaintext", "sasl_ssl"):
            for mechanism, module in jaas.items():
                self._settings[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = module
        users = [f'{name}=[name="alice",password="{PASSWORD}"]' for name in SCRAM]
        self.format_options = tuple(part for user in users for part in ("--add-scram", user))
        _make_certificate(directory)

    def settings(self, protocol: str, **more: str) -> dict[str, Any]:
        """A client's."""
        found = {"bootstrap.servers": f"127.0.0.1:{self.ports[protocol]}", "security.protocol": protocol}
        if protocol.endswith("SSL"):
            found["ssl.truststore.location"] = str(self._directory / "cert.pem")
        if protocol == "SSL":
            found["ssl.keystore.location"] = str(self._directory / "broker.pem")
        else:
            found |= {"sasl.username": "alice", "sasl.password": PASSWORD}
        return {**found, **more}


def _make_certificate(folder: Path) -> None:
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    extra = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command.split(), *extra], check=True, capture_output=True)
    (folder / "broker.pem").write_text(key.read_text() + cert.read_text())


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    broker = SecureKafka(tmp_path_factory.mktemp("secure"))
    broker.start()
    yield broker
    broker.stop()


WAYS = ["SSL", *(f"{way} {by}" for way in ("SASL_PLAINTEXT", "SASL_SSL") for by in ("PLAIN", *SCRAM))]


@pytest.mark.parametrize("way", WAYS)
def test_all_three_clients_come_in(kafka: SecureKafka, way: str, unique: Callable[[str], str]) -> None:
    protocol, *mechanism = way.split()
    settings, topic = kafka.settings(protocol), unique("topic")
    if mechanism:
        settings["sasl.mechanism"] = mechanism[0]
    with barnabas.Admin(settings) as admin:
        admin.create_topics(barnabas.NewTopic(topic, 1, 1))
    with barnabas.Producer(settings) as producer:
        assert producer.send(topic, b"x" * 500_000).result(60).offset == 0

    async def awaited() -> None:
        async with barnabas.aio.Admin(settings) as admin:
            assert (await admin.list_offsets({(topic, 0): "latest"}))[topic, 0].offset == 1
        async with barnabas.aio.Producer(settings) as producer:
            await producer.send(topic, b"y")

    asyncio.run(awaited())
    with barnabas.Consumer(topic, settings, group_id=topic, auto_offset_reset="earliest") as consumer:
        read: list[bytes] = []
        while len(read) < 2:
            read += [record.value for record in consumer.poll(60)]
    assert read == [b"x" * 500_000, b"y"]


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
def test_a_wrong_password_is_told_at_once(kafka: SecureKafka, mechanism: str, stopwatch: Stopwatch) -> None:
    wrong = kafka.settings("SASL_SSL", **{"sasl.mechanism": mechanism, "sasl.password": "wrong"})
    began = stopwatch()
    with barnabas.Admin(wrong) as admin, pytest.raises(SaslAuthenticationFailed, match=r"sasl\.password") as caught:
        admin.list_topics()
    assert [attempt.stage for attempt in caught.value.attempts] == ["sasl"]
    with barnabas.Admin(wrong) as admin, pytest.raises(SaslAuthenticationFailed):
        admin.list_groups()
    with barnabas.Producer(wrong) as producer, pytest.raises(SaslAuthenticationFailed):
        producer.send("t", b"x")
    with barnabas.Consumer("t", wrong, group_id="g") as consumer, pytest.raises(SaslAuthenticationFailed):
        consumer.poll(60)
    with barnabas.Consumer(wrong) as consumer, pytest.raises(SaslAuthenticationFailed):
        consumer.beginning_offsets([("t", 0)])
    assert stopwatch() - began < 30, "one call alone would go on trying for a minute"


def test_other_misunderstandings(kafka: SecureKafka) -> None:
    without = kafka.settings("SASL_PLAINTEXT", **{"sasl.mechanism": "OAUTHBEARER"})
    without["sasl.oauthbearer.token.provider"] = lambda: "token"
    with barnabas.Admin(without) as admin, pytest.raises(UnsupportedSaslMechanism, match=r"it offers: .*PLAIN"):
        admin.list_topics()
    for settings, words in (
        ({"bootstrap.servers": f"127.0.0.1:{kafka.ports['SSL']}"}, "set security.protocol"),
        ({**kafka.settings("SSL"), "bootstrap.servers": kafka.bootstrap}, "security.protocol is PLAINTEXT"),
    ):
        with (
            barnabas.Admin(settings, bootstrap_timeout_ms=0) as admin,
            pytest.raises(BrokerUnreachable, match=words.replace(".", r"\.")),
        ):
            admin.list_topics()
