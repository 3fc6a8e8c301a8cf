# ruff: noqa: E501 -- sentences are compared whole
"""Stories about settings. The sentences are those of Apache Kafka 4.4.0."""

import pytest

from barnabas.config.broker import BrokerConfig
from barnabas.controller import configuration_control
from barnabas.controller.requests import ConfigOp, ConfigOperation, ConfigResource, ResourceType
from barnabas.errors import InvalidRequest
from barnabas.registry.registry import SetTopicConfig

from .story import World, tell

STORIES = {
    "single settings of a topic": """
        $ brokers 1
        $ create a
        a: created
        $ change topic a set:retention.ms:5 set:segment.bytes:100
        topic a: changed
        $ change topic a delete:retention.ms delete:nope
        topic a: changed
        $ configs
        topic a: segment.bytes=100
        $ change topic a set:nope:1
        topic a: INVALID_CONFIG Unknown topic config name: nope
        $ change topic a set:segment.bytes:x set:retention.ms:9
        topic a: INVALID_CONFIG Invalid value x for configuration segment.bytes: Not a number of type INT
        $ configs
        topic a: segment.bytes=100
    """,
    "lists are added to and taken from": """
        $ brokers 1
        $ create a
        a: created
        $ change topic a append:cleanup.policy:compact
        topic a: changed
        $ configs
        topic a: cleanup.policy=delete,compact
        $ change topic a append:cleanup.policy:compact
        topic a: changed
        $ change topic a subtract:cleanup.policy:delete
        topic a: changed
        $ configs
        topic a: cleanup.policy=compact
        $ change topic a subtract:cleanup.policy:compact
        topic a: changed
        $ configs
        topic a: cleanup.policy=
        $ change topic a append:retention.ms:5
        topic a: INVALID_CONFIG Can't APPEND to key retention.ms because its type is not LIST.
        $ change topic a subtract:nope:5
        topic a: INVALID_CONFIG Can't SUBTRACT to key nope because its type is not LIST.
    """,
    "requests that make no sense": """
        $ brokers 1
        $ create a
        a: created
        $ change topic a set:retention.ms
        topic a: INVALID_REQUEST Null value not supported for : retention.ms
        $ change topic a set:retention.ms:1 set:retention.ms:2
        topic a: INVALID_REQUEST Error due to duplicate config keys
        $ change topic a set:retention.ms:1 times=2
        topic a: INVALID_REQUEST Each resource must appear at most once.
        topic a: INVALID_REQUEST Each resource must appear at most once.
        $ change topic a frobnicate:retention.ms:1
        topic a: INVALID_REQUEST Unknown operations type 9
        $ change topic nosuch set:retention.ms:5
        topic nosuch: UNKNOWN_TOPIC_OR_PARTITION The topic 'nosuch' does not exist.
        $ change topic bad! set:retention.ms:5
        topic bad!: INVALID_TOPIC_EXCEPTION Topic name is invalid: 'bad!' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'
        $ change topic '' set:retention.ms:5
        topic : INVALID_REQUEST Default topic resources are not allowed.
        $ change logger 1 set:root:DEBUG
        logger 1: INVALID_REQUEST Unknown resource type 8
        $ change group g set:consumer.session.timeout.ms:5
        group g: INVALID_REQUEST Unknown resource type 32
        $ change nonsense x set:a:b
        nonsense x: INVALID_REQUEST Unknown resource type 99
    """,
    "the older operation replaces everything": """
        $ brokers 1
        $ create a segment.bytes=100 retention.ms=5
        a: created
        $ replace topic a retention.ms=7
        topic a: replaced
        $ configs
        topic a: retention.ms=7
        $ replace topic a zzz=7
        topic a: INVALID_CONFIG Unknown topic config name: zzz
        $ replace topic a retention.ms=NULL
        topic a: INVALID_REQUEST Null value not supported for : retention.ms
        $ replace topic nosuch retention.ms=7
        topic nosuch: UNKNOWN_TOPIC_OR_PARTITION The topic 'nosuch' does not exist.
        $ replace topic a
        topic a: replaced
        $ configs
    """,
    "settings of one broker and of all": """
        $ change broker 1 set:log.retention.ms:5000 append:log.cleanup.policy:compact
        broker 1: changed
        $ change broker '' set:message.max.bytes:1000000
        broker : changed
        $ configs
        broker all: message.max.bytes=1000000
        broker 1: log.cleanup.policy=delete,compact log.retention.ms=5000
        $ change broker 1 set:node.id:5
        broker 1: INVALID_REQUEST Cannot update these configs dynamically: [node.id]
        $ change broker '' set:message.max.bytes:x
        broker : INVALID_REQUEST Invalid value x for configuration message.max.bytes: Not a number of type INT
        $ change broker 7 set:message.max.bytes:1
        broker 7: INVALID_REQUEST Unexpected broker id, expected 1, but received 7
        $ change broker x set:message.max.bytes:1
        broker x: INVALID_REQUEST Node id must be an integer, but it is: x
        $ change broker '' set:unknown.thing:1
        broker : INVALID_CONFIG unknown.thing is not a setting of a broker; `barnabas serve --help` lists all settings
        $ change broker 1 set:sasl.kerberos.min.time.before.relogin:58000
        broker 1: changed
        $ replace broker '' log.segment.bytes=14
        broker : replaced
        $ configs
        broker all: log.segment.bytes=14
        broker 1: log.cleanup.policy=delete,compact log.retention.ms=5000 sasl.kerberos.min.time.before.relogin=58000
    """,
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
def test_story(story: str) -> None:
    told, lived = tell(story)
    assert lived == told


def test_one_bad_resource_does_not_hinder_the_others() -> None:
    world = World()
    world.do("brokers 1")
    world.do("create a")
    good = (ConfigResource(ResourceType.TOPIC, "a"), [ConfigOperation("retention.ms", ConfigOp.SET, "5")])
    bad = (ConfigResource(ResourceType.BROKER, "9"), [ConfigOperation("x", ConfigOp.SET, "5")])
    outcome = configuration_control.incremental_alter_configs(world.image, [bad, good], BrokerConfig())
    assert [isinstance(error, InvalidRequest) for _, error in outcome.results] == [True, False]
    assert len(outcome.changes) == 1


def test_what_a_newer_release_has_set_stays_and_can_be_deleted() -> None:
    world = World()
    world.do("brokers 1")
    world.do("create a")
    world.apply([SetTopicConfig("a", {"new": "1"})])
    assert world.do("change topic a set:retention.ms:5") == ["topic a: changed"]
    assert world.image.topic_config("a") == {"new": "1", "retention.ms": "5"}
    (refused,) = world.do("change topic a set:new:2")
    assert refused == "topic a: INVALID_CONFIG Unknown topic config name: new"
    assert world.do("change topic a delete:new") == ["topic a: changed"]
    assert world.image.topic_config("a") == {"retention.ms": "5"}


def test_a_broker_number_of_thousands_of_digits_is_an_invalid_request():
    with pytest.raises(InvalidRequest, match="must be an integer"):
        configuration_control.parse_node_id("9" * 5_000, "Broker id")
    assert configuration_control.parse_node_id("-2147483648", "Broker id") == -(2**31)
