"""Metadata updates as messages: they come back as they were, by the bytes that are sent."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.cluster.metadata_messages import message_of, update_of
from barnabas.config.endpoints import Endpoint
from barnabas.metadata.image import BrokerImage, PartitionImage, TopicImage
from barnabas.metadata.update import BrokerConfigEntry, BrokerEntry, MetadataUpdate, TopicConfigEntry, TopicEntry
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.peer_messages.push_metadata import BrokerEntryData, PushMetadataRequest

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=10)
IDS = st.integers(-1, 2**31 - 1)
EPOCHS = st.integers(0, 2**31 - 1)
HOSTS = st.sampled_from(["127.0.0.1", "::1", "broker.example", "fe80::1%eth0"])
ENDPOINTS = st.builds(
    Endpoint,
    st.sampled_from(["PLAINTEXT", "INTERNAL", "V6"]),
    st.sampled_from(["PLAINTEXT", "SASL_PLAINTEXT"]),
    HOSTS,
    st.integers(1, 65535),
)
LISTS = st.lists(IDS, max_size=3).map(tuple)
BROKERS = st.builds(
    BrokerImage,
    IDS,
    EPOCHS,
    st.lists(ENDPOINTS, max_size=3).map(tuple),
    st.none() | st.text(st.characters(codec="utf-8"), max_size=5),
    st.booleans(),
    st.none() | ENDPOINTS,
    st.text(st.characters(codec="utf-8"), max_size=9),
    st.sampled_from(["", "lost", "unclean"]),
)
PARTITIONS = st.builds(PartitionImage, IDS, EPOCHS, *[LISTS] * 2, EPOCHS, *[LISTS] * 4)
TOPIC_IDS = st.integers(1, 2**128 - 1).map(lambda number: UUID(int=number))
TOPICS = st.builds(TopicImage, NAMES, TOPIC_IDS, st.lists(PARTITIONS, min_size=1, max_size=3).map(tuple))
SETTINGS = st.dictionaries(NAMES, st.text(st.characters(codec="utf-8"), max_size=5), max_size=3)
# In the order in which `parts_of_update` yields them.
ENTRIES = st.tuples(
    st.lists(
        BROKERS.map(lambda broker: BrokerEntry(broker.node_id, broker)) | IDS.map(lambda each: BrokerEntry(each, None))
    ),
    st.lists(st.builds(BrokerConfigEntry, st.sampled_from(["", "1"]), SETTINGS)),
    st.lists(TOPICS.map(lambda topic: TopicEntry(topic.name, topic)) | NAMES.map(lambda name: TopicEntry(name, None))),
    st.lists(st.builds(TopicConfigEntry, NAMES, SETTINGS)),
).map(lambda groups: tuple(entry for group in groups for entry in group))
VERSIONS = st.integers(0, 2**63 - 1)
UPDATES = st.builds(MetadataUpdate, NAMES, IDS, EPOCHS, VERSIONS, VERSIONS, EPOCHS, st.booleans(), ENTRIES)


@given(UPDATES)
def test_an_update_comes_back_as_it_was(update: MetadataUpdate) -> None:
    data = encode(message_of(update), 0)
    message, end = decode(PushMetadataRequest, 0, data)
    assert end == len(data)
    assert update_of(message) == update


@pytest.mark.parametrize("text", ["", "PLAINTEXT", "PLAINTEXT|A://host", "PLAINTEXT|A://host:port", "é"])
def test_an_endpoint_that_is_none_is_refused(text: str) -> None:
    for broker in (
        BrokerEntryData(node_id=1, epoch=1, endpoints=[text]),
        BrokerEntryData(node_id=1, epoch=1, peer_endpoint=text),
    ):
        with pytest.raises(ValueError, match="invalid literal"):
            update_of(PushMetadataRequest(brokers=[broker]))
