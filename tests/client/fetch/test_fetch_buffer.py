"""Fetched records and errors that wait for their reader, and those that are dropped before."""

import pytest

from barnabas.client.fetch.fetch_session import FetchConfig
from barnabas.client.fetch.fetcher import RETRY_S
from barnabas.errors import TopicAuthorizationFailed
from client.fetch.rig import T0, T1, Rig, append, cluster_of, one


def test_what_is_in_store_of_a_paused_partition_gives_way() -> None:
    cluster = cluster_of({"t": 2}, nodes=1)
    for log in cluster.logs.values():
        append(log, 5)
    rig = Rig(cluster, FetchConfig(max_bytes=100))
    rig.start(T0)
    rig.round()
    rig.subscription.assign([T0, T1])
    rig.subscription.seek(T1, 0)
    rig.subscription.pause([T0])
    assert rig.offsets() == {}
    rig.round()
    assert rig.offsets() == {T1: [0, 1, 2, 3, 4]}
    rig.subscription.resume([T0])
    rig.round()
    assert rig.offsets() == {T0: [0, 1, 2, 3, 4]}


def test_paused_partitions_keep_what_is_in_store() -> None:
    rig = one()
    rig.round()
    rig.subscription.pause([T0])
    assert rig.offsets() == {}
    assert rig.fetcher.buffer.is_empty
    assert rig.requests() == []
    rig.subscription.resume([T0])
    assert rig.offsets()[T0] == list(range(10))


def test_a_seek_drops_what_is_in_store() -> None:
    rig = one()
    rig.round()
    rig.subscription.seek(T0, 4)
    assert rig.offsets() == {}
    assert rig.fetcher.buffer.size_bytes == 0
    rig.round()
    assert rig.offsets() == {T0: [4, 5, 6, 7, 8, 9]}


def test_partitions_that_go_take_everything_with_them() -> None:
    rig = one()
    rig.round()
    rig.fetcher.forget([T0])
    assert rig.fetcher.buffer.size_bytes == 0
    assert rig.fetcher.buffer.is_empty


@pytest.mark.parametrize("version", [11, 18])
def test_what_the_former_leader_gave_is_not_read_behind_a_check_with_the_new_one(version: int) -> None:
    """The new leader lacks the second record and has others instead. Brokers before Fetch v12 do not tell later."""
    cluster = cluster_of({"t": 1}, nodes=3, version=version)
    log = cluster.logs[T0]
    append(log, 2)
    rig = Rig(cluster)
    rig.start(T0)
    rig.round()
    assert rig.offsets(1) == {T0: [0]}, "the second one is in buffer"
    cluster.move_leader(T0, 2)
    log.truncate(1)
    append(log, 2)
    rig.refresh()
    (asked,) = rig.subscription.partitions_needing_validation(rig.now).values()
    assert rig.subscription.validated(T0, asked, *log.end_of_epoch(asked.offset_epoch), 0) is None
    rig.round()
    assert [record.value for record in rig.read()[T0]] == [log.values[1], log.values[2]]


def test_a_partition_that_is_being_revoked_gives_nothing() -> None:
    rig = one()
    rig.round()
    rig.subscription.mark_pending_revocation([T0])
    assert rig.offsets() == {}
    assert rig.requests() == []


def test_a_failure_does_not_outlive_a_seek() -> None:
    rig = one()
    rig.cluster.logs[T0].fetch_error = 29
    rig.round()
    rig.subscription.seek(T0, 3)
    assert rig.offsets() == {}
    rig.cluster.logs[T0].fetch_error = 0
    rig.cluster.advance(RETRY_S)
    rig.round()
    assert rig.offsets()[T0] == list(range(3, 10))


def test_batches() -> None:
    rig = one(7)
    rig.round()
    buffer = rig.fetcher.buffer
    fetch = buffer.next_fetch()
    assert fetch is not None
    batch = fetch.read_batch()
    assert batch is not None
    assert [record.offset for record in batch] == list(range(7))
    assert fetch.is_ended
    assert buffer.was_read(fetch, ended=True)
    assert rig.position() == 7
    assert buffer.next_fetch() is None
    assert buffer.size_bytes == 0
    rig.cluster.logs[T0].fetch_error = TopicAuthorizationFailed.code
    rig.round()
    assert buffer.next_fetch(raises_errors=False) is None
    with pytest.raises(TopicAuthorizationFailed):
        buffer.next_fetch()
    assert buffer.next_fetch() is None, "told once"
