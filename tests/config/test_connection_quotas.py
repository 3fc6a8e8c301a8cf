"""max.connections.per.ip.overrides."""

import pytest

from barnabas.config.connection_quotas import parse_overrides
from barnabas.errors import UsageError


def test_hosts_with_their_limits() -> None:
    assert parse_overrides("") == parse_overrides(" , ") == {}
    assert parse_overrides("10.0.0.7:100, host.example:0,[::1]:5") == {"10.0.0.7": 100, "host.example": 0, "[::1]": 5}
    assert parse_overrides("::1:5") == {"::1": 5}


@pytest.mark.parametrize("item", ["host", "host:", ":5", "host:-1", "host:x", "host:\u0665"])
def test_what_is_no_limit_is_named(item: str) -> None:
    with pytest.raises(UsageError, match="is not of the form host:count") as refused:
        parse_overrides(f"10.0.0.7:1,{item}")
    assert f"'{item}'" in str(refused.value)
