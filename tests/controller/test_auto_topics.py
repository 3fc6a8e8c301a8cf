"""How many replicas topics get that nobody has described."""

import pytest

from barnabas.config.broker import BrokerConfig
from barnabas.controller.auto_topics import auto_topic_request

DEFAULT, OFFSETS = "default.replication.factor", "offsets.topic.replication.factor"


@pytest.mark.parametrize(
    ("settings", "name", "of_registered"),
    [
        ({}, "t", {1: 1, 5: 1}),
        ({DEFAULT: "3"}, "t", {1: 3, 5: 3}),
        ({}, "__consumer_offsets", {1: 1, 2: 2, 5: 3}),
        ({OFFSETS: "3"}, "__consumer_offsets", {1: 3, 5: 3}),
        ({DEFAULT: "1"}, "__consumer_offsets", {1: 1, 5: 3}),
        ({DEFAULT: "2"}, "__consumer_offsets", {1: 2, 2: 2, 5: 3}),
        ({DEFAULT: "5"}, "__consumer_offsets", {1: 3, 5: 3}),
        ({DEFAULT: "3", OFFSETS: "1"}, "__consumer_offsets", {1: 1, 5: 1}),
        ({DEFAULT: "2"}, "__transaction_state", {1: 2, 5: 3}),
    ],
)
def test_what_is_set_is_demanded_and_a_default_is_a_wish(
    settings: dict[str, str], name: str, of_registered: dict[int, int]
) -> None:
    config = BrokerConfig(settings)
    made = {count: auto_topic_request(name, config, count).replication_factor for count in of_registered}
    assert made == of_registered


@pytest.mark.parametrize(("registered", "least"), [(1, "1"), (2, "2"), (5, "2")])
def test_transactions_need_as_many_replicas_in_sync_as_there_can_be(registered: int, least: str) -> None:
    request = auto_topic_request("__transaction_state", BrokerConfig({}), registered)
    assert request.configs["min.insync.replicas"] == least
