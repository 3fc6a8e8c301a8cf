"""Options that many commands have: lists of partitions, settings."""

import pytest

from barnabas.cli.framework.options import Cluster, parse_partitions, parse_settings
from barnabas.errors import UsageError


def test_partition_lists() -> None:
    assert parse_partitions("0,2,5-7") == [0, 2, 5, 6, 7]
    for text in ("", "a", "1-", "-1", "\u00b2", "1-\u00b2", "9" * 5000):
        with pytest.raises(UsageError, match="numbers and ranges"):
            parse_partitions(text)
    with pytest.raises(UsageError, match="begins with its lower number"):
        parse_partitions("0,7-5")
    with pytest.raises(UsageError, match="at most 100000 partitions"):
        parse_partitions("0-9999999999")


def test_settings() -> None:
    assert parse_settings(["a=b=c", " d = e "], "--config") == {"a": "b=c", "d": "e"}
    with pytest.raises(UsageError, match="NAME=VALUE"):
        parse_settings(["a"], "--config")


def test_the_time_that_is_left_is_shared_and_never_all_used_up() -> None:
    assert [Cluster(timeout=10).after(seconds).timeout for seconds in (0, 4, 9)] == [10, 6, 3]


@pytest.mark.parametrize(("timeout", "connect_ms"), [(0.5, 450), (2, 1000), (10, 3000), (60, 10_000)])
def test_a_connection_leaves_time_for_another(timeout: float, connect_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BARNABAS_BOOTSTRAP", "BARNABAS_CLIENT_CONFIG", "BARNABAS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    assert Cluster(timeout=timeout).settings()["socket.connection.setup.timeout.ms"] == connect_ms
