"""What the benchmarks need of the machine."""

import pytest

from bench.peers import PeerUnavailable, need


def test_a_tool_that_is_not_there_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    need()
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(PeerUnavailable, match="go is not on PATH: apt-get install golang"):
        need("go", "java")
