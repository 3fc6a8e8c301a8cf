"""Incremental fetch sessions against full fetches: what a client knows after each answer is what a full fetch says.

The broker is real and so is the wire; the client's side of KIP-227 is the model here.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from barnabas.errors import UnknownTopicOrPartition
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.fetch import ForgottenTopic
from barnabas.testing import Broker
from broker.sent_requests import batch, fetch, produce
from broker.wire import Wire

PARTITIONS = st.integers(0, 3)
VERSION = 12


class Known(NamedTuple):
    """A client's knowledge of a partition."""

    error_code: int
    high_watermark: int
    log_start_offset: int


def known(partition: Any) -> Known:
    return Known(partition.error_code, partition.high_watermark, partition.log_start_offset)


@pytest.fixture(scope="module")
def served() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


class Sessions(RuleBasedStateMachine):
    broker: Broker

    @initialize()
    def begin(self) -> None:
        self.broker.reset()
        self.broker.create_topic("t", partitions=3)  # a fourth is asked for, which is not there
        self.wire = Wire(self.broker)
        self.offsets: dict[int, int] = {}
        self.view: dict[int, Known] = {}
        self.session_id = 0
        self.epoch = 0

    def teardown(self) -> None:
        self.wire.close()

    # --- the world ----------------------------------------------------------------------------------------------------

    @rule(partition=st.integers(0, 2), count=st.integers(1, 3))
    def produce(self, partition: int, count: int) -> None:
        self.wire.ask(produce(self.broker, {partition: batch(*[b"x"] * count)}), 12)

    @rule(partition=st.integers(0, 2))
    def delete_records(self, partition: int) -> None:
        wanted = DeleteRecordsPartition(partition_index=partition, offset=-1)
        topics = [DeleteRecordsTopic(name="t", partitions=[wanted])]
        self.wire.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2)

    # --- the client ---------------------------------------------------------------------------------------------------

    @rule(offsets=st.dictionaries(PARTITIONS, st.integers(0, 4), min_size=1))
    def full_fetch(self, offsets: dict[int, int]) -> None:
        """Begins anew: a new session in place of the old one."""
        answer = self.wire.ask(
            fetch(self.broker, offsets, VERSION, session_id=self.session_id, session_epoch=0), VERSION
        )
        assert answer.session_id > 0
        self.session_id, self.epoch = answer.session_id, 1
        self.offsets, self.view = dict(offsets), {}
        assert self._take(answer) == set(offsets), "a full answer tells of all"

    @rule(changed=st.dictionaries(PARTITIONS, st.integers(0, 4)), dropped=st.sets(PARTITIONS))
    def incremental_fetch(self, changed: dict[int, int], dropped: set[int]) -> None:
        if not self.epoch:
            return
        dropped &= self.offsets.keys() - changed.keys()
        forgotten = [ForgottenTopic(topic="t", partitions=sorted(dropped))] if dropped else []
        request = fetch(
            self.broker,
            changed,
            VERSION,
            session_id=self.session_id,
            session_epoch=self.epoch,
            forgotten_topics_data=forgotten,
        )
        self.offsets = {index: at for index, at in (self.offsets | changed).items() if index not in dropped}
        self.view = {index: seen for index, seen in self.view.items() if index not in dropped}
        answer = self.wire.ask(request, VERSION)
        assert answer.error_code == 0
        self.epoch += 1
        if not self.offsets:  # a session without partitions is over
            assert answer.session_id == 0
            self.session_id = self.epoch = 0
        assert self._take(answer) <= set(self.offsets), "nothing is told of what was forgotten"

    @rule()
    def wrong_epoch(self) -> None:
        if self.epoch:
            request = fetch(self.broker, {}, VERSION, session_id=self.session_id, session_epoch=self.epoch + 1)
            assert self.wire.ask(request, VERSION).error_code == 71  # INVALID_FETCH_SESSION_EPOCH

    @rule()
    def restart_of_the_client(self) -> None:
        """The session stays behind; it must not matter."""
        self.wire.close()
        self.wire = Wire(self.broker)
        self.session_id = self.epoch = 0
        self.offsets, self.view = {}, {}

    def _take(self, answer: Any) -> set[int]:
        """Apply an answer, and hold it against what a full fetch says at this moment."""
        told = {part.partition_index: part for topic in answer.responses for part in topic.partitions}
        self.view.update((index, known(part)) for index, part in told.items())
        if self.offsets:
            full = self.wire.ask(fetch(self.broker, self.offsets, VERSION), VERSION)
            truth = {part.partition_index: part for topic in full.responses for part in topic.partitions}
            assert self.view == {index: known(part) for index, part in truth.items()}
            for index, part in truth.items():
                assert (told[index].records if index in told else b"") == part.records
        return set(told)

    @invariant()
    def the_partition_that_is_not_there_stays_an_error(self) -> None:
        if 3 in getattr(self, "view", {}):
            assert self.view[3].error_code == UnknownTopicOrPartition.code


def test_sessions_tell_what_full_fetches_tell(served: Broker) -> None:
    Sessions.broker = served
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Sessions,
        settings=settings(
            max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
