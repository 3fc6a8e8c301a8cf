"""Which failures an operation outlives, when it pauses, and what it ends with."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from barnabas.connection.flow import settle
from barnabas.connection.network_client import ANY, CONTROLLER, Coordinator, Node, Target
from barnabas.connection.retry import Answer, RequestBuilder, Results, Retry, find_target_again, send_with_retries
from barnabas.errors import (
    ClientClosed,
    ConcurrentTransactions,
    ConnectionLost,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaError,
    NotController,
    NotCoordinator,
    OperationTimedOut,
    RequestTimedOut,
    UnsupportedVersion,
    error_for,
)
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from simulation.cluster import SILENT, SingleClientCluster
from simulation.requests import ReceivedRequest

GROUP = Coordinator("g")


def code_of(response: Any) -> int:
    code: int = response.error_code
    return code


def cluster_that_answers(*codes: Any, nodes: int = 2) -> SingleClientCluster:
    """To ListGroups and Heartbeat: with each of these codes once, then without an error."""
    cluster = SingleClientCluster(nodes=nodes)
    left = list(codes)

    def answers(response: type[Any]) -> Callable[[ReceivedRequest], Any]:
        def answer(_: ReceivedRequest) -> Any:
            code = left.pop(0) if left else 0
            return SILENT if code is SILENT else response(error_code=code)

        return answer

    cluster.handlers[ApiKey.LIST_GROUPS] = answers(ListGroupsResponse)
    cluster.handlers[ApiKey.HEARTBEAT] = answers(HeartbeatResponse)
    return cluster


def heartbeat(cluster: SingleClientCluster, retry: Retry, **options: Any) -> Any:
    return cluster.result(settle(retry.send(HeartbeatRequest(group_id="g"), GROUP, code_of, **options)))


def test_an_error_of_the_broker_ends_the_operation() -> None:
    cluster = SingleClientCluster()
    cluster.handlers[ApiKey.LIST_GROUPS] = lambda received: ListGroupsResponse(error_code=15)
    promise = send_with_retries(cluster.network_client, ListGroupsRequest(), ANY, timeout_s=5, check=code_of)
    with pytest.raises(CoordinatorNotAvailable):
        cluster.result(promise)
    assert 5 <= cluster.count(ApiKey.LIST_GROUPS) <= 20


def test_lost_connections_end_the_operation_with_their_reasons() -> None:
    cluster = SingleClientCluster()
    cluster.up.clear()
    with pytest.raises(OperationTimedOut, match=r"gave up after 5 s.*connection refused") as raised:
        cluster.result(send_with_retries(cluster.network_client, ListGroupsRequest(), ANY, timeout_s=5))
    assert raised.value.attempts


def test_silence_ends_the_operation_at_its_deadline() -> None:
    cluster = cluster_that_answers(14, SILENT)
    began = cluster.now
    retry = Retry(cluster.network_client, timeout_s=2)
    with pytest.raises(CoordinatorLoadInProgress):
        heartbeat(cluster, retry)
    assert cluster.now == pytest.approx(began + 2, abs=0.2)
    assert [attempt.address for attempt in retry.attempts] == ["coordinator of 'g'"]


def test_silence_from_the_first_attempt_on() -> None:
    cluster = cluster_that_answers(SILENT)
    with pytest.raises(OperationTimedOut, match=r"the commit was given up after 2 s: no answer came"):
        heartbeat(cluster, Retry(cluster.network_client, timeout_s=2, gave_up="the commit was given up"))


def test_pauses_grow() -> None:
    cluster = cluster_that_answers(*[14] * 4)
    began = cluster.now
    heartbeat(cluster, Retry(cluster.network_client))
    assert 0.8 * 1.5 <= cluster.now - began <= 1.2 * 1.5 + 0.1  # 0.1, 0.2, 0.4, 0.8 s with a fifth of jitter


def test_the_markers_of_the_transaction_before_are_waited_for_in_milliseconds() -> None:
    cluster = cluster_that_answers(ConcurrentTransactions.code)
    began = cluster.now
    heartbeat(cluster, Retry(cluster.network_client), is_retriable=lambda error: True)
    assert cluster.now - began < 0.1


def test_there_are_no_more_retries_than_allowed() -> None:
    cluster = cluster_that_answers(14, 14, 14)
    with pytest.raises(CoordinatorLoadInProgress):
        heartbeat(cluster, Retry(cluster.network_client, retries=1))
    assert cluster.count(ApiKey.HEARTBEAT) == 2


def test_an_error_that_no_retry_mends_is_raised_at_once() -> None:
    cluster = cluster_that_answers(25)
    with pytest.raises(KafkaError, match="UNKNOWN_MEMBER_ID"):
        heartbeat(cluster, Retry(cluster.network_client, timeout_s=60))
    assert cluster.count(ApiKey.HEARTBEAT) == 1


def test_a_response_that_is_not_wanted_any_more_is_not_asked_for_again() -> None:
    cluster = cluster_that_answers(14, 14, 14)
    wanted = [True, False]
    with pytest.raises(CoordinatorLoadInProgress):
        heartbeat(cluster, Retry(cluster.network_client), is_wanted=lambda: wanted.pop(0))
    assert cluster.count(ApiKey.HEARTBEAT) == 1


def test_a_broker_that_is_too_old_is_not_asked() -> None:
    cluster = cluster_that_answers()
    builder = RequestBuilder(ListGroupsRequest(), at_least=99)
    with pytest.raises(UnsupportedVersion, match="too old for this"):
        cluster.result(send_with_retries(cluster.network_client, builder, ANY, timeout_s=5))
    assert cluster.count(ApiKey.LIST_GROUPS) == 0


def test_a_mistake_in_checking_a_response_is_raised() -> None:
    cluster = cluster_that_answers()
    with pytest.raises(AttributeError, match="no_such_field"):
        cluster.result(
            send_with_retries(
                cluster.network_client,
                ListGroupsRequest(),
                ANY,
                timeout_s=5,
                check=lambda response: response.no_such_field,
            )
        )


def test_attempts_are_kept_for_the_next_operation() -> None:
    cluster = cluster_that_answers(14, 16)
    retry = Retry(cluster.network_client)
    heartbeat(cluster, retry)
    heartbeat(cluster, Retry(cluster.network_client, attempts=retry.attempts))
    assert [attempt.address for attempt in retry.attempts] == ["coordinator of 'g'"] * 2


@pytest.mark.parametrize(
    ("error", "lookups"),
    [
        (CoordinatorLoadInProgress(), 1),
        *(
            (error, 2)
            for error in (NotCoordinator(), CoordinatorNotAvailable(), RequestTimedOut(), ConnectionLost("x"))
        ),
    ],
)
def test_a_coordinator_that_may_have_moved_is_looked_up_again(error: Any, lookups: int) -> None:
    cluster = cluster_that_answers()
    heartbeat(cluster, Retry(cluster.network_client))
    find_target_again(cluster.network_client, GROUP, error)
    heartbeat(cluster, Retry(cluster.network_client))
    assert cluster.count(ApiKey.FIND_COORDINATOR) == lookups


def test_a_controller_that_may_have_moved_is_looked_up_again() -> None:
    cluster = cluster_that_answers()
    cluster.result(cluster.network_client.refresh_metadata())
    assert not cluster.network_client.metadata.update_requested
    find_target_again(cluster.network_client, CONTROLLER, NotController())
    assert cluster.network_client.metadata.update_requested


# --- several items ----------------------------------------------------------------------------------------------------


class Items:
    """An operation on the numbers of nodes, each of which is asked for itself."""

    def __init__(self, cluster: SingleClientCluster, *numbers: int) -> None:
        self.cluster = cluster
        self.results: Results[int, int] = Results(numbers)
        self.succeeded: list[int] = []

    def target(self, number: int) -> Target | None:
        return Node(number) if number in self.cluster.network_client.metadata.cluster.brokers else None

    def answers(self, response: Any, numbers: list[int]) -> Iterable[Answer[int, int]]:
        return [(number, response.error_code, number * 10) for number in numbers]

    def run(self, retry: Retry, **options: Any) -> Results[int, int]:
        self.cluster.result(
            settle(
                retry.send_each(
                    self.results,
                    self.target,
                    lambda numbers: ListGroupsRequest(),
                    self.answers,
                    on_success=lambda number, _: self.succeeded.append(number),
                    **options,
                )
            )
        )
        return self.results


def test_each_item_is_asked_for_until_it_has_an_answer() -> None:
    cluster = cluster_that_answers(14, 0)
    items = Items(cluster, 1, 2)
    results = items.run(Retry(cluster.network_client, timeout_s=30))
    assert (results.succeeded, results.failed, results.pending) == ({1: 10, 2: 20}, {}, {})
    assert sorted(items.succeeded) == [1, 2]
    assert cluster.count(ApiKey.LIST_GROUPS) == 3


def test_one_item_fails_and_the_other_goes_on() -> None:
    cluster = cluster_that_answers(29, 14)
    results = Items(cluster, 1, 2).run(Retry(cluster.network_client, timeout_s=30))
    assert len(results.succeeded) == 1
    assert [type(error) for error in results.failed.values()] == [type(error_for(29))]


def test_the_first_failure_may_end_the_operation() -> None:
    cluster = cluster_that_answers(29, SILENT)
    items = Items(cluster, 1, 2)
    began = cluster.now
    results = items.run(Retry(cluster.network_client, timeout_s=30), ends_with_first_failure=True)
    assert len(results.failed) == len(results.pending) == 1
    assert cluster.now - began < 1


def test_items_without_a_target_end_with_the_time() -> None:
    cluster = cluster_that_answers()
    results = Items(cluster, 1, 7).run(Retry(cluster.network_client, timeout_s=3, gave_up="list_groups gave up"))
    assert results.succeeded == {1: 10}
    assert str(results.failed[7]) == "list_groups gave up after 3 s: no answer came"


def test_a_client_that_is_closed_between_two_attempts_ends_the_operation() -> None:
    cluster = cluster_that_answers(14, 14)
    items = Items(cluster, 1)
    cluster.network_client.at(cluster.now + 0.05, cluster.network_client.close)
    assert isinstance(items.run(Retry(cluster.network_client, timeout_s=30)).failed[1], ClientClosed)


def test_a_mistake_in_reading_a_response_is_raised() -> None:
    items = Items(cluster_that_answers(), 1)
    items.answers = lambda response, numbers: [][0]  # type: ignore[method-assign]
    with pytest.raises(IndexError):
        items.run(Retry(items.cluster.network_client, timeout_s=30))
