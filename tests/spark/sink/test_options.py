"""A write's options: what they mean, and what is said of those that are wrong. No session."""

import pytest

from barnabas.errors import UsageError
from barnabas.spark.option_table import SINK_OPTIONS, check_names
from barnabas.spark.sink.options import SinkOptions

LEAST = {"bootstrap.servers": "localhost:9092", "topic": "orders"}


def parse(*, streaming: bool = False, **more: str) -> SinkOptions:
    return SinkOptions.parse(
        {**LEAST, **{name.replace("__", "."): text for name, text in more.items()}}, streaming=streaming
    )


def test_the_least() -> None:
    for streaming in (False, True):
        options = parse(streaming=streaming)
        assert options == ({"bootstrap.servers": "localhost:9092"}, "orders", True, None, 0, None, None)
    assert SinkOptions.parse({"kafka.bootstrap.servers": "a:1"}, streaming=True).topic is None
    assert parse(streaming=True, checkpointLocation="/data/q").checkpoint == "/data/q"


def test_every_option_of_the_table_is_known() -> None:
    for option in SINK_OPTIONS:
        check_names({option.name: "", option.name.lower(): ""})


def test_settings_of_the_producer_pass_and_those_of_consumers_do_not_matter() -> None:
    options = parse(kafka__linger__ms="7", kafka__compression__type="lz4", kafka__fetch__max__bytes="9")
    assert options.client == {
        "bootstrap.servers": "localhost:9092",
        "linger.ms": "7",
        "compression.type": "lz4",
    }


def test_who_writes_what() -> None:
    options = parse(txnAppId="nightly", txnVersion="12")
    assert (options.app_id, options.version) == ("nightly", 12)
    assert not parse(exactlyOnce="None").two_phase
    assert parse(exactlyOnce="none", kafka__acks="1").client["acks"] == "1"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"topic": " "}, "option topic is empty"),
        ({"tpoic": "x"}, "did you mean topic"),
        ({"exactlyOnce": "once"}, "exactlyOnce='once' must be one of two-phase, none"),
        ({"txnAppId": "a"}, "txnAppId is given without txnVersion"),
        ({"txnVersion": "1"}, "txnVersion is given without txnAppId"),
        ({"txnAppId": "a/b", "txnVersion": "1"}, "txnAppId='a/b' must be a name of 1 to 100 characters without /"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "txnVersion='-1' must be a whole number from 0 on"),
        ({"txnAppId": "a", "txnVersion": "1", "exactlyOnce": "none"}, "contradict"),
        ({"kafka.transactional.id": "x"}, "kafka.transactional.id cannot be used: .* option txnAppId"),
        ({"kafka.acks": "1"}, "needs transactions, which kafka.acks rules out .* or set exactlyOnce=none"),
        ({"kafka.linger.ms": "soon"}, "begin with kafka.: .*linger.ms"),
        ({"bootstrap.servers": ""}, "bootstrap.servers is missing"),
    ],
)
def test_what_is_wrong_is_named(wrong: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        SinkOptions.parse({**LEAST, **wrong}, streaming=False)


def test_a_stream_has_no_version() -> None:
    with pytest.raises(UsageError, match="a stream is known by its checkpoint"):
        parse(streaming=True, txnAppId="a", txnVersion="1")
