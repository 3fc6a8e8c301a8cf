"""Fetch sessions: what requests carry, and when both sides begin anew."""

from uuid import uuid4

import pytest

from barnabas.client.fetch.fetch_session import FetchConfig
from barnabas.client.settings import ConsumerSettings
from barnabas.protocol.messages import fetch as messages
from client.fetch.rig import T0, T1, U0, Rig, append, cluster_of, one


def test_what_the_settings_say_is_asked_for() -> None:
    settings = ConsumerSettings(
        fetch_min_bytes=5, fetch_max_wait_ms=70, fetch_max_bytes=900, max_partition_fetch_bytes=80, client_rack="r",
        isolation_level="read_committed", check_crcs=False,
    )  # fmt: skip
    rig = one(config=FetchConfig.of(settings))
    (request,) = rig.requests()
    built = request.build(18)
    assert (built.min_bytes, built.max_wait_ms, built.max_bytes, built.rack_id) == (5, 70, 900, "r")
    assert built.isolation_level == 1
    assert built.topics[0].partitions[0].partition_max_bytes == 80
    assert not rig.fetcher.config.check_crcs


def test_a_topic_without_an_id_is_asked_for_by_name() -> None:
    rig = one()
    rig.cluster.topic_ids["t"] = uuid4().__class__(int=0)
    rig.refresh()
    (request,) = rig.requests()
    assert request.at_most == 12
    rig.answer(request)
    assert rig.offsets()[T0] == list(range(10))


def test_a_session_sends_what_changed_only() -> None:
    cluster = cluster_of({"t": 2, "u": 1}, nodes=1)
    rig = Rig(cluster)
    rig.start(T0, T1, U0)
    (first,) = rig.requests()
    assert first.data.is_full
    rig.answer(first)
    append(cluster.logs[T1], 3)
    (second,) = rig.requests()
    assert not second.data.is_full
    assert second.data.to_send == {}
    rig.answer(second)
    rig.offsets()
    (third,) = rig.requests()
    assert {topic_partition: wanted.offset for topic_partition, wanted in third.data.to_send.items()} == {T1: 3}
    rig.answer(third)
    rig.subscription.pause([U0])
    (fourth,) = rig.requests()
    assert [topic_partition for topic_partition, _ in fourth.data.to_forget] == [U0]
    rig.answer(fourth)
    assert len(cluster.sessions[1]) == 1
    (ending,) = rig.fetcher.close()
    rig.fetch(ending)
    assert len(cluster.sessions[1]) == 0
    assert rig.fetcher.close() == []


def test_a_full_request_tells_of_a_partition_without_news() -> None:
    rig = one(3)
    rig.round()
    rig.offsets()
    rig.round()
    assert rig.state().empty_at == -1, "left out of the response"
    (request,) = rig.requests()
    rig.fetcher.request_all()
    rig.answer(request)
    (following,) = rig.requests()
    assert following.data.is_full
    assert following.data.session_id == request.data.session_id
    rig.answer(following)
    assert rig.state().empty_at == 3
    (incremental,) = rig.requests()
    assert not incremental.data.is_full


def test_a_session_that_the_broker_lost_begins_anew() -> None:
    cluster = cluster_of({"t": 1}, nodes=1)
    rig = Rig(cluster)
    rig.start(T0)
    rig.round()
    (request,) = rig.requests()
    cluster.sessions[1].end(request.data.session_id)
    append(cluster.logs[T0], 2)
    rig.answer(request)
    assert rig.offsets() == {}
    (again,) = rig.requests()
    assert again.data.is_full
    assert again.data.session_id == 0
    rig.answer(again)
    assert rig.offsets() == {T0: [0, 1]}


def test_a_lost_request_ends_the_session_it_may_have_changed() -> None:
    cluster = cluster_of({"t": 1}, nodes=1)
    rig = Rig(cluster)
    rig.start(T0)
    rig.round()
    (lost,) = rig.requests()
    rig.fetch(lost)
    rig.fetcher.failed(lost)
    (again,) = rig.requests()
    assert again.data.is_full
    assert again.data.session_id == lost.data.session_id != 0
    rig.answer(again)
    assert len(cluster.sessions[1]) == 1, "the former one is gone"


def test_a_broker_without_room_for_sessions() -> None:
    cluster = cluster_of({"t": 1}, nodes=1, slots=0)
    rig = Rig(cluster)
    rig.start(T0)
    for count in range(3):
        append(cluster.logs[T0], 1)
        (request,) = rig.requests()
        assert request.data.is_full
        rig.answer(request)
        assert rig.offsets() == {T0: [count]}


@pytest.mark.parametrize("extra", [True, False])
def test_an_answer_that_does_not_fit_its_request(extra: bool) -> None:
    cluster = cluster_of({"t": 2}, nodes=1, version=12)
    rig = Rig(cluster)
    rig.start(T0, T1)
    (request,) = rig.requests()
    response = rig.fetch(request)
    (topic,) = response.responses
    stranger = messages.PartitionData(partition_index=9)
    topic.partitions = [*topic.partitions, stranger] if extra else topic.partitions[:1]
    rig.answer(request, response)
    (again,) = rig.requests()
    assert again.data.is_full
    rig.answer(again)
    (incremental,) = rig.requests()
    assert not incremental.data.is_full
    response = rig.fetch(incremental)
    response.responses = [messages.FetchableTopicResponse(topic="t", partitions=[stranger])] if extra else []
    rig.answer(incremental, response)
    (following,) = rig.requests()
    assert following.data.is_full == extra, "nothing to tell is what an incremental answer may say"


def test_a_session_keeps_to_names_or_ids() -> None:
    cluster = cluster_of({"t": 1, "u": 1}, nodes=1)
    rig = Rig(cluster)
    rig.start(T0)
    rig.round()
    no_id = uuid4().__class__(int=0)
    cluster.topic_ids["u"] = no_id
    rig.refresh()
    rig.subscription.assign([T0, U0])
    rig.subscription.seek(U0, 0)
    (request,) = rig.requests()
    assert request.data.is_full
    assert request.at_most == 12
    rig.answer(request)
    assert len(cluster.sessions[1]) == 1
