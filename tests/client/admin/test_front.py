"""`barnabas.Admin` and `barnabas.aio.Admin` against a broker of ours: the same story told to both."""

import inspect
import os
import threading
from typing import Any

import pytest

import barnabas
import barnabas.aio
from barnabas.client.admin.admin_client import KafkaAdminClient
from barnabas.errors import ClientClosed, ItemsFailed, NotController, OperationTimedOut
from barnabas.testing import Broker


def calls() -> list[str]:
    return [name for name, _ in inspect.getmembers(KafkaAdminClient, inspect.isfunction) if not name.startswith("_")]


@pytest.mark.parametrize("front", [barnabas.Admin, barnabas.aio.Admin])
def test_both_fronts_have_every_call_with_its_words(front: Any) -> None:
    for name in set(calls()) - {"topics_with_records"}:
        assert inspect.signature(getattr(front, name)) == inspect.signature(getattr(KafkaAdminClient, name)), name
        assert getattr(front, name).__doc__ == getattr(KafkaAdminClient, name).__doc__


def test_a_controller_that_moved_is_asked_again(admin: Any, broker: Broker, name: str) -> None:
    broker.faults.error("CREATE_TOPICS", NotController, times=2)
    assert name in admin.create_topics(name)


def test_errors_tell_what_was_tried(admin: Any, broker: Broker, name: str) -> None:
    broker.faults.error("CREATE_TOPICS", NotController, times=None)
    with pytest.raises(ItemsFailed) as caught:
        admin.create_topics(name, timeout=3)
    assert isinstance(caught.value.failed[name], OperationTimedOut)
    assert isinstance(caught.value.failed[name].__cause__, NotController)
    assert "NOT_CONTROLLER" in caught.value.attempts[-1].error


def test_a_port_without_a_broker(broker: Broker) -> None:
    with barnabas.Admin(bootstrap_servers="127.0.0.1:1") as admin, pytest.raises(OperationTimedOut) as caught:
        admin.list_topics(timeout=3)
    assert caught.value.attempts[-1].stage == "tcp"
    assert "connection refused" in str(caught.value)


def test_threads_share_an_admin_and_a_fork_has_its_own(broker: Broker) -> None:
    with barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        answers: list[int] = []
        threads = [
            threading.Thread(target=lambda: answers.append(admin.describe_cluster().controller_id)) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert answers == [1] * 8
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = 0 if admin.describe_cluster().controller_id == 1 else 1
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert admin.describe_cluster().controller_id == 1
    with pytest.raises(ClientClosed):
        admin.list_topics()
