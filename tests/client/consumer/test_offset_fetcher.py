"""Where a consumer begins, with the answers in the test's hands."""

from collections.abc import Collection

from barnabas.client.consumer.offset_fetcher import OffsetFetcher
from barnabas.client.consumer.subscription_state import SubscriptionState
from barnabas.client.fetch.positions import STALE_S, ResetStrategy
from barnabas.client.offset_messages import OffsetAndMetadata
from barnabas.connection.promise import Promise
from barnabas.protocol.apis import ApiKey
from barnabas.types import TopicPartition
from simulation.cluster import SingleClientCluster

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Coordinator:
    """Keeps the questions; the test answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[TopicPartition], Promise[dict[TopicPartition, OffsetAndMetadata | None]]]] = []

    def committed(
        self, partitions: Collection[TopicPartition], timeout_s: float
    ) -> Promise[dict[TopicPartition, OffsetAndMetadata | None]]:
        answer: Promise[dict[TopicPartition, OffsetAndMetadata | None]] = Promise()
        self.asked.append((list(partitions), answer))
        return answer


def fetcher_of(cluster: SingleClientCluster, coordinator: Coordinator) -> tuple[SubscriptionState, OffsetFetcher]:
    subscription = SubscriptionState(ResetStrategy.parse("earliest"))
    subscription.subscribe(["t"])
    offset_fetcher = OffsetFetcher(
        cluster.network_client,
        subscription,
        coordinator,  # type: ignore[arg-type]
        read_committed=False,
        timeout_s=10,
        wall_ms=lambda: 0,
        on_position_known=lambda: None,
    )
    return subscription, offset_fetcher


def test_what_was_committed_before_a_partition_went_and_came_again_is_too_old() -> None:
    coordinator, cluster = Coordinator(), SingleClientCluster()
    subscription, offset_fetcher = fetcher_of(cluster, coordinator)
    subscription.assign_subscribed([P0, P1])
    offset_fetcher.advance(cluster.now)
    subscription.assign_subscribed([P1])  # another member reads and commits P0 meanwhile
    subscription.assign_subscribed([P0, P1])
    offset_fetcher.changed()
    coordinator.asked[0][1].resolve({P0: OffsetAndMetadata(5), P1: OffsetAndMetadata(6)})
    assert subscription.position(P0) is None
    kept = subscription.position(P1)
    assert kept is not None
    assert kept.offset == 6
    offset_fetcher.advance(cluster.now)
    again, answer = coordinator.asked[1]
    assert again == [P0]
    answer.resolve({P0: OffsetAndMetadata(9)})
    position = subscription.position(P0)
    assert position is not None
    assert position.offset == 9


def test_partitions_with_a_leader_that_is_not_believed_are_asked_for_together() -> None:
    partitions = [TopicPartition("t", number) for number in range(40)]
    coordinator, cluster = Coordinator(), SingleClientCluster({"t": len(partitions)})
    cluster.network_client.add_topics(["t"])
    cluster.settle()
    subscription, offset_fetcher = fetcher_of(cluster, coordinator)
    cluster.network_client.components.append(offset_fetcher)
    subscription.assign_subscribed(partitions)
    offset_fetcher.changed()
    cluster.settle()
    coordinator.asked[0][1].resolve({partition: OffsetAndMetadata(1, "", 7) for partition in partitions})
    began = cluster.now
    assert cluster.run(lambda: all(subscription.position(partition) for partition in partitions), seconds=60)
    assert STALE_S <= cluster.now - began < STALE_S + 2
    assert cluster.count(ApiKey.OFFSET_FOR_LEADER_EPOCH) < 20
