"""Serializers, partitioners and interceptors of the application."""

from typing import Any

import pytest

from barnabas.client.producer.plugins import Interceptors, ProducerRecord, RecordSerializer
from barnabas.client.producer.producer_batch import RecordMetadata
from barnabas.client.settings import ProducerSettings
from barnabas.errors import MessageTooLarge, UsageError

PLACE = RecordMetadata("t", 1, 5, 0)


def test_a_partitioner_is_asked_only_for_records_without_a_partition() -> None:
    asked: list[Any] = []

    def choose(topic: str, key: Any, value: Any, count: int) -> int:
        asked.append((topic, key, value, count))
        return 2

    settings = ProducerSettings(key_serializer=str.encode, value_serializer=str.encode, partitioner_class=choose)
    serializer = RecordSerializer(settings)
    assert serializer.serialize("t", 3, "v", "k", None) == (b"v", b"k", 2)
    assert serializer.serialize("t", 3, None, None, 1) == (None, None, 1), "serializers get no None"
    assert asked == [("t", b"k", b"v", 3)], "as they are sent"
    assert RecordSerializer(ProducerSettings()).serialize("t", 3, b"v", b"k", None) == (b"v", b"k", None)


@pytest.mark.parametrize("chosen", [3, -1, None, "1"])
def test_a_partition_that_does_not_exist_is_refused(chosen: Any) -> None:
    serializer = RecordSerializer(ProducerSettings(partitioner_class=lambda *_: chosen))
    with pytest.raises(UsageError, match=rf"partitioner\.class chose {chosen!r} for t, which has partitions 0 to 2"):
        serializer.serialize("t", 3, b"v", None, None)


class Numbering:
    """Appends its number to each value, and keeps what it hears."""

    def __init__(self, number: int, heard: list[Any]) -> None:
        self.number, self.heard = number, heard

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record._replace(value=record.value + b"%d" % self.number)

    def on_acknowledgement(self, error: Any, metadata: RecordMetadata) -> None:
        self.heard.append((self.number, error, metadata))


def test_interceptors_come_one_after_the_other_and_before_the_callback() -> None:
    heard: list[Any] = []
    interceptors = Interceptors([Numbering(1, heard), Numbering(2, heard)])
    assert interceptors.on_send(ProducerRecord("t", b"v")).value == b"v12"
    interceptors.watching(lambda error, metadata: heard.append(("callback", error, metadata)))(None, PLACE)
    assert heard == [(1, None, PLACE), (2, None, PLACE), ("callback", None, PLACE)]


def test_a_record_that_was_not_taken_is_told_with_its_partition() -> None:
    heard: list[Any] = []
    error = MessageTooLarge("too large")
    for partition, told in ((3, 3), (None, -1)):
        Interceptors([Numbering(1, heard)]).not_taken(ProducerRecord("t", partition=partition), error)
        assert heard.pop() == (1, error, RecordMetadata("t", told, -1, -1))


def test_interceptors_that_fail_are_logged_and_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    class Failing:
        def on_send(self, record: ProducerRecord) -> Any:
            raise ZeroDivisionError

    class Odd:
        def on_send(self, record: ProducerRecord) -> Any:
            return b"odd"

    interceptors = Interceptors([Failing, Odd(), Numbering(1, [])])
    assert interceptors.on_send(ProducerRecord("t", b"v")).value == b"v1"
    assert "ZeroDivisionError" in caplog.text
    assert "no ProducerRecord" in caplog.text
    with pytest.raises(UsageError, match="neither on_send nor on_acknowledgement"):
        Interceptors([object()])
