"""A disk of records that hangs: its broker is replaced, also as the controller, and follows when the disk goes on."""

import threading

import pytest

from barnabas import Producer
from barnabas.broker.cluster.member import ClusterMember
from barnabas.controller.controller import Controller
from barnabas.errors import RequestTimedOut
from barnabas.testing import Cluster
from broker.wire import on_loop, server_of

SETTINGS = {"broker.session.timeout.ms": 1500, "broker.heartbeat.interval.ms": 300}


def test_the_controllers_work_does_not_wait_for_a_disk_of_records() -> None:
    with Cluster(brokers=3, settings=SETTINGS) as cluster:
        cluster.create_topic("t", replication_factor=3)
        cluster.wait_in_sync()
        hung = cluster.controller
        cluster.move_leader("t", to=hung)
        others = {1, 2, 3} - {hung}
        # a request that nobody answers is sent again after request.timeout.ms
        with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0, request_timeout_ms=2000) as producer:
            producer.send("t", b"before").result(30)
            with cluster.disk(hung).hang():
                late = producer.send("t", b"while")
                cluster.wait_for(lambda: cluster.controller in others, what="another controller")
                cluster.wait_for(lambda: cluster.leader("t") in others, what="another leader")
                assert late.result(30).offset == 1
                cluster.broker(min(others)).admin.create_topics("made-meanwhile")
                assert cluster.in_sync_replicas("t") == others
            cluster.wait_in_sync()
            assert cluster.controller != hung
            assert producer.send("t", b"after").result(30).offset == 2
        assert [record.value for record in cluster.records("t")] == [b"before", b"while", b"after"]


def stand_down(member: ClusterMember, *, still_stands: bool) -> bool:
    """Has the watchdog's decision carried out, in a thread."""
    done: list[bool] = []
    thread = threading.Thread(target=lambda: done.append(member._stand_down(lambda: still_stands)))
    thread.start()
    thread.join()
    return done[0]


def test_a_controller_whose_loop_goes_on_in_time_keeps_its_role(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RequestTimedOut("the registry does not respond")

    with Cluster(brokers=2) as cluster:
        cluster.wait_in_sync()
        node_id = cluster.controller
        broker = cluster.broker(node_id)
        member = server_of(broker)._cluster
        assert member is not None
        assert not stand_down(member, still_stands=False)
        assert on_loop(broker, member._keeps_role)
        with monkeypatch.context() as patched:
            patched.setattr(Controller, "fence", refuse)
            assert not stand_down(member, still_stands=True)
            assert not on_loop(broker, member._keeps_role)
        cluster.wait_for(lambda: on_loop(broker, member._keeps_role), what="the registry says that the role is there")
        assert cluster.controller == node_id
