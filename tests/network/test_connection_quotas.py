"""Host names of quotas become addresses."""

import socket
from typing import Any

import pytest

from barnabas.errors import UsageError
from barnabas.network.connection_quotas import is_address, resolve_overrides


def test_addresses_need_no_dns() -> None:
    assert resolve_overrides({"127.0.0.1": 5, "[::1]": 6}) == {"127.0.0.1": 5, "::1": 6}
    assert is_address("127.0.0.1")
    assert is_address("[::1]")
    assert not is_address("localhost")
    assert not is_address("a" * 70 + ".example")


def test_a_name_stands_for_all_of_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(host: str, *_: Any, **__: Any) -> list[Any]:
        if host == "gone.example":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(0, 0, 0, "", ("10.0.0.1", 0)), (0, 0, 0, "", ("fe80::1", 0, 0, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert resolve_overrides({"host.example": 7}) == {"10.0.0.1": 7, "fe80::1": 7}
    with pytest.raises(UsageError, match=r"gone\.example cannot be resolved; give an address"):
        resolve_overrides({"host.example": 7, "gone.example": 1})
