"""Addresses as users write them, and which of several serves."""

import pytest

import barnabas
from barnabas.connection.broker.addresses import parse_bootstrap, split_address
from barnabas.errors import UsageError
from barnabas.testing import Broker


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("host:1234", ("host", 1234)),
        ("host", ("host", 9092)),
        ("[::1]:1234", ("::1", 1234)),
        ("::1", ("::1", 9092)),
        ("PLAINTEXT://host:1", ("host", 1)),
    ],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    assert split_address(text) == expected


@pytest.mark.parametrize("text", ["", ":9092", "host:0", "host:99999", "host:x", "host:\u00b2"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"^address"):
        split_address(text)


def test_bootstrap_lists() -> None:
    assert parse_bootstrap("a:1, b") == [("a", 1), ("b", 9092)]
    for wrong in ("", " , ", "a:x"):
        with pytest.raises(UsageError):
            parse_bootstrap(wrong)


def test_the_second_address_serves_where_the_first_does_not(broker: Broker) -> None:
    for addresses in (f"127.0.0.1:1,{broker.bootstrap_servers}", f"{broker.bootstrap_servers},127.0.0.1:1"):
        with barnabas.Admin(bootstrap_servers=addresses, bootstrap_timeout_ms=0) as admin:
            assert len(admin.describe_cluster().brokers) == 1
