"""Idempotent producers with several batches on their way, the first of which is refused: each record is there once.

librdkafka raises its epoch in all partitions when a batch is out of order. Where the answer to a batch was lost, it
then sends that one as a new one: https://github.com/confluentinc/librdkafka/issues/4953.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import barnabas
from barnabas.broker.requests.dispatch import Dispatcher
from barnabas.broker.requests.request_context import RequestContext
from barnabas.network.connection import NO_REPLY, Parts, PendingReply
from barnabas.protocol.apis import ApiKey
from barnabas.replication.partition import Partition
from barnabas.testing import Broker
from broker.followers import add_follower, remove_follower, without_follower
from broker.wire import on_loop, server_of

confluent = pytest.importorskip("confluent_kafka")

UNANSWERED, REFUSED = "unanswered", "refused"
Send = Callable[[str, bytes], object]


class Scene:
    """The misfortunes of a producer, once they begin: the answer to the batch of one topic is lost, and what is sent
    again there is refused. Of two batches of the other topic the first is refused, which is told when the second came.
    """

    def __init__(self, broker: Broker) -> None:
        self._dispatcher = server_of(broker).dispatcher
        leader_of = server_of(broker).replica_manager.leader_of
        self._unanswered, self._refused = leader_of(UNANSWERED, 0), leader_of(REFUSED, 0)
        self._held: tuple[PendingReply, Parts] | None = None
        self.lost, self.refused, self.ended = threading.Event(), threading.Event(), threading.Event()

    def begin(self, *, lose_answer: bool) -> None:
        if not lose_answer:
            self.lost.set()
        self._dispatcher.intercept = self._meet

    def _meet(
        self, dispatcher: Dispatcher, context: RequestContext, frame: memoryview, position: int
    ) -> Parts | PendingReply:
        if context.api_key == ApiKey.PRODUCE and not self.ended.is_set():
            if not self.lost.is_set():
                dispatcher.handle(context, frame, position)
                return self._lose_answer(context)
            names = REFUSED.encode(), self._refused.topic_id.bytes
            if any(name in bytes(frame) for name in names):
                if self._held is None:
                    too_few(self._refused)
                    return self._hold(context, dispatcher.handle(context, frame, position))
                answer = dispatcher.handle(context, frame, position)
                self._tell()
                return answer
        return dispatcher.handle(context, frame, position)

    def _lose_answer(self, context: RequestContext) -> Parts:
        too_few(self._unanswered)
        context.connection.close("the test asked for it")
        self.lost.set()
        return NO_REPLY

    def _hold(self, context: RequestContext, answer: Parts | PendingReply) -> PendingReply:
        assert not isinstance(answer, PendingReply), "it was refused at once"
        self._held = context.pending_reply(), answer
        without_follower(self._refused)
        self.refused.set()
        return self._held[0]

    def _tell(self) -> None:
        assert self._held is not None
        reply, answer = self._held
        reply.resolve(answer)
        without_follower(self._unanswered)
        self.ended.set()


def too_few(partition: Partition) -> None:
    """Leaves the leader alone in sync, where min.insync.replicas asks for two."""
    add_follower(partition)
    remove_follower(partition)


@pytest.fixture
def scene(broker: Broker) -> Iterator[Scene]:
    for topic in (UNANSWERED, REFUSED):
        broker.create_topic(topic, configs={"min.insync.replicas": "2"})
    yield Scene(broker)
    server_of(broker).dispatcher.intercept = None


def play(broker: Broker, scene: Scene, send: Send, flush: Callable[[], object], *, lose_answer: bool) -> None:
    for topic in (UNANSWERED, REFUSED):
        send(topic, b"1")
        flush()
    on_loop(broker, lambda: scene.begin(lose_answer=lose_answer))
    if lose_answer:
        send(UNANSWERED, b"2")
        assert scene.lost.wait(60)
    send(REFUSED, b"2")
    assert scene.refused.wait(60)
    send(REFUSED, b"3")
    assert scene.ended.wait(60)
    flush()


def assert_written(broker: Broker, topic: str, *values: bytes) -> None:
    """Asserts what is there of a topic, all in the first epoch of its producer."""
    assert [record.value for record in broker.records(topic)] == [*values]
    (producer,) = server_of(broker).replica_manager.leader_of(topic, 0).log.active_producers()
    assert producer.producer_epoch == 0


def test_librdkafka_writes_each_record_once(broker: Broker, scene: Scene) -> None:
    settings: dict[str, Any] = {"enable.idempotence": True, "linger.ms": 0, "retry.backoff.ms": 10, "log_level": 0}
    producer = confluent.Producer({"bootstrap.servers": broker.bootstrap_servers, **settings})
    play(broker, scene, producer.produce, producer.flush, lose_answer=True)
    assert_written(broker, UNANSWERED, b"1", b"2")
    assert_written(broker, REFUSED, b"1", b"2", b"3")


def test_our_producer_writes_each_record_once(broker: Broker, scene: Scene) -> None:
    with barnabas.Producer(
        bootstrap_servers=broker.bootstrap_servers, enable_idempotence=True, linger_ms=0, retry_backoff_ms=10
    ) as producer:
        play(broker, scene, producer.send, producer.flush, lose_answer=False)
    assert_written(broker, REFUSED, b"1", b"2", b"3")
