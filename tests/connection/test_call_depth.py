"""How many functions of ours a batch passes on its way from `Producer.send` to the socket."""

import sys
from types import CodeType, FrameType
from typing import Any

import pytest

import barnabas
from barnabas.connection.broker.broker_connection import BrokerConnection
from barnabas.testing import Broker

FUNCTIONS_MAX = 12
PACKAGE = barnabas.__path__[0]

pytestmark = pytest.mark.source


class Calls:
    """Profiles a thread: the deepest stack at a call of a socket's send, and at the encoding of a request's body."""

    def __init__(self) -> None:
        self.sends: list[list[str]] = []
        self.requests: list[list[str]] = []

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call" and argument.__name__ in ("send", "sendmsg"):
            self.sends.append(self._functions(frame))
        elif event == "call" and frame.f_code is _code(BrokerConnection.send):
            self.requests.append(self._functions(frame))

    @staticmethod
    def _functions(frame: FrameType | None) -> list[str]:
        found = []
        while frame is not None:
            if frame.f_code.co_filename.startswith(PACKAGE):
                found.append(frame.f_code.co_qualname)
            frame = frame.f_back
        return found[::-1]


def _code(function: Any) -> CodeType:
    code: CodeType = function.__code__
    return code


def test_a_batch_passes_few_functions(broker: Broker, name: str) -> None:
    calls = Calls()
    with barnabas.Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0}) as producer:
        producer.send(name, b"first").result(60)
        sys.setprofile(calls)
        try:
            handles = [producer.send(name, b"record") for _ in range(20)]
        finally:
            sys.setprofile(None)
        for handle in handles:
            handle.result(60)
    assert calls.sends
    assert calls.requests
    for functions in (*calls.sends, *calls.requests):
        assert len(functions) <= FUNCTIONS_MAX, functions
