"""The address that a client gets."""

from pathlib import Path

import pytest

from barnabas.config.advertise import AdvertiseRules, container_gateway
from barnabas.config.broker import BrokerConfig
from barnabas.config.endpoints import Endpoint
from barnabas.errors import UsageError

EVERYWHERE = Endpoint("PLAINTEXT", "PLAINTEXT", "0.0.0.0", 9092)
NAMED = Endpoint("PLAINTEXT", "PLAINTEXT", "kafka.local", 9092)


@pytest.mark.parametrize(
    ("rules", "endpoint", "client", "told"),
    [
        (["auto"], EVERYWHERE, "192.168.1.7", ("192.168.1.2", 9092)),
        ([], EVERYWHERE, "192.168.1.7", ("192.168.1.2", 9092)),
        (["listeners"], NAMED, "192.168.1.7", ("kafka.local", 9092)),
        (["listeners"], EVERYWHERE, "192.168.1.7", ("192.168.1.2", 9092)),
        (["10.0.0.0/8=outside:19092", "auto"], EVERYWHERE, "10.1.2.3", ("outside", 19092)),
        (["10.0.0.0/8=outside:19092", "auto"], EVERYWHERE, "::ffff:10.1.2.3", ("outside", 19092)),
        (["10.0.0.0/8=outside", "auto"], EVERYWHERE, "10.1.2.3", ("outside", 9092)),
        (["10.0.0.0/8=outside", "auto"], EVERYWHERE, "11.1.2.3", ("192.168.1.2", 9092)),
        (["fd00::/8=[fd00::1]:7", "auto"], EVERYWHERE, "fd00::5%eth0", ("fd00::1", 7)),
        (["fd00::/8=fd00::1", "auto"], EVERYWHERE, "fd00::5", ("fd00::1", 9092)),
        (["10.1.0.0/16=near", "10.0.0.0/8=far"], EVERYWHERE, "10.1.2.3", ("near", 9092)),
    ],
)
def test_rules(rules: list[str], endpoint: Endpoint, client: str, told: tuple[str, int]) -> None:
    assert AdvertiseRules(rules).address(endpoint, client, "192.168.1.2", 9092) == told


def test_a_published_port_of_a_container_is_reached_by_localhost() -> None:
    rules = AdvertiseRules(["auto"], gateway="172.17.0.1")
    assert rules.address(EVERYWHERE, "172.17.0.1", "172.17.0.2", 9092) == ("localhost", 9092)
    assert rules.address(EVERYWHERE, "172.17.0.3", "172.17.0.2", 9092) == ("172.17.0.2", 9092)


@pytest.mark.parametrize("rule", ["", "always", "10.0.0.0/8", "10.0.0.0/8=", "10.0.0.0/99=x", "x=y", "10.0.0.0/8=h:p",
                                  "10.0.0.0/8=h:70000"])  # fmt: skip
def test_what_is_not_a_rule_is_refused(rule: str) -> None:
    with pytest.raises(UsageError, match="is neither auto nor listeners nor a rule such as"):
        AdvertiseRules([rule])


def test_it_is_refused_at_the_start() -> None:
    with pytest.raises(UsageError, match="advertise: 'always' is neither"):
        BrokerConfig({"advertise": "always"})


def test_the_gateway_of_a_container(tmp_path: Path) -> None:
    (tmp_path / "proc/net").mkdir(parents=True)
    assert container_gateway(tmp_path) is None
    (tmp_path / ".dockerenv").touch()
    assert container_gateway(tmp_path) is None
    header = "Iface\tDestination\tGateway\tFlags\n"
    (tmp_path / "proc/net/route").write_text(header + "eth0\t0011AC\t00000000\t0001\neth0\t00000000\t010011AC\t0003\n")
    assert container_gateway(tmp_path) == "172.17.0.1"
    (tmp_path / "proc/net/route").write_text(header)
    assert container_gateway(tmp_path) is None


def test_a_read_only_container_of_podman_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has neither file, as an empty /run lies over the one."""
    monkeypatch.setenv("container", "podman")
    (tmp_path / "proc/net").mkdir(parents=True)
    (tmp_path / "proc/net/route").write_text("Iface\tDestination\tGateway\tFlags\neth0\t00000000\t0100580A\t0003\n")
    assert container_gateway(tmp_path) == "10.88.0.1"
