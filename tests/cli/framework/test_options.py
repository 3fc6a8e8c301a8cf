"""Options that many commands have: lists of partitions, settings."""

import pytest

from barnabas.cli.framework.options import parse_partitions, parse_settings
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
