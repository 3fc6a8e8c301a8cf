"""Carries out what other programs ask for in the registry's store, by the calls that serve clients' requests.

A request that is carried out or refused is settled: nothing is left of it in the store. One that waits for brokers to
come back, or for a reassignment to end, stays.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol, TypeVar
from uuid import UUID

from barnabas.config.broker import BrokerConfig
from barnabas.controller.reassignment_control import Reassignment
from barnabas.controller.replication_control import MAX_PARTITIONS_PER_REQUEST
from barnabas.controller.requests import ConfigResource, ElectionType, PartitionsRequest, ResourceType, TopicRequest
from barnabas.errors import (
    ElectionNotNeeded,
    InvalidRequest,
    KafkaError,
    NotController,
    RequestTimedOut,
    TopicDeletionDisabled,
)
from barnabas.metadata.image import MetadataImage, TopicImage
from barnabas.registry.outside_requests import (
    OutsideRequest,
    RequestedConfig,
    RequestedDeletion,
    RequestedElection,
    RequestedReassignment,
    RequestedTopic,
    UnreadableRequest,
)
from barnabas.registry.registry import Registry, RegistryUnavailable
from barnabas.types import BrokerId

__all__ = ["OutsideRequests"]

T = TypeVar("T")
R = TypeVar("R", bound=OutsideRequest)

_AT_A_TIME: Final = 1000
"""The number of settings, deletions, reassignments or elections that are decided as a whole."""
_LINES_MAX: Final = 10
"""The number of log lines for requests of one kind."""


class ControllerCalls(Protocol):
    """The controller's calls that serve clients' requests."""

    @property
    def image(self) -> MetadataImage: ...

    def create_topics(self, requests: Sequence[TopicRequest]) -> Mapping[str, TopicImage | KafkaError]: ...

    def create_partitions(self, requests: Sequence[PartitionsRequest]) -> Mapping[str, KafkaError | None]: ...

    def delete_topics(self, topics: Sequence[str]) -> Mapping[str | UUID, KafkaError | None]: ...

    def alter_configs(
        self, requests: Sequence[tuple[ConfigResource, Sequence[tuple[str, str | None]]]]
    ) -> Sequence[tuple[ConfigResource, KafkaError | None]]: ...

    def alter_reassignments(self, requests: Sequence[Reassignment]) -> Mapping[tuple[str, int], KafkaError | None]: ...

    def elect_leaders(
        self, election_type: int, partitions: Sequence[tuple[str, int]]
    ) -> Mapping[tuple[str, int], KafkaError | None]: ...


class OutsideRequests:
    """Used on the thread of the controller."""

    def __init__(self, controller: ControllerCalls, registry: Registry, config: Callable[[], BrokerConfig]) -> None:
        self._controller = controller
        self._registry = registry
        self._config = config
        self._log = logging.getLogger("barnabas.controller")
        self._epoch = -1
        self._started: dict[tuple[str, int], tuple[int, ...]] = {}
        """The replicas of reassignments that have begun in this epoch."""
        self._waiting: set[str] = set()
        """The nodes of topics that wait for brokers, as the log has said."""
        self._failure = ""

    def serve(self, controller_epoch: int) -> None:
        """Carries out what is asked for, in this epoch of the controller. What fails is tried again with the next call,
        and holds up no other kind. Raises RegistryUnavailable if it is unknown what is asked for."""
        requests = self._registry.outside_requests()
        if not requests or controller_epoch != self._epoch:
            self._epoch = controller_epoch
            self._started.clear()
            self._waiting.clear()
        if not requests:
            return
        failure = ""
        for serve in (
            self._refuse_unreadable,
            self._serve_topics,
            self._serve_configs,
            self._serve_deletions,
            self._serve_reassignments,
            self._serve_elections,
        ):
            try:
                serve(requests)
            except (RequestTimedOut, RegistryUnavailable) as error:
                failure = str(error)
            except NotController:
                return  # the next one does it
        if failure and failure != self._failure:
            self._log.warning("what other programs ask for is tried again soon: %.200s", failure)
        self._failure = failure

    def _refuse_unreadable(self, requests: Sequence[OutsideRequest]) -> None:
        self._settle([(each, InvalidRequest(each.reason)) for each in _of(UnreadableRequest, requests)], "")

    # -- topics -----------------------------------------------------------------------------------------------------

    def _serve_topics(self, requests: Sequence[OutsideRequest]) -> None:
        ready = [each for each in _of(RequestedTopic, requests) if not self._waits(each)]
        topics = self._controller.image.topics
        new = [each for each in ready if each.name not in topics]
        for part in _slices(new, lambda each: len(each.assignments), MAX_PARTITIONS_PER_REQUEST):
            created = self._controller.create_topics(
                [
                    TopicRequest(each.name, assignments=sorted(each.assignments.items()), configs=each.config)
                    for each in part
                ]
            )
            self._settle([(each, _error(created[each.name])) for each in part], "the topic is created")
        self._serve_partitions([each for each in ready if each.name in topics])

    def _serve_partitions(self, requests: Sequence[RequestedTopic]) -> None:
        for part in _slices(requests, lambda each: len(each.assignments), MAX_PARTITIONS_PER_REQUEST):
            added: list[PartitionsRequest] = []
            outcomes: dict[str, KafkaError | None] = {}
            for each in part:
                topic = self._controller.image.topics[each.name]
                present = len(topic.partitions)
                numbers = sorted(number for number in each.assignments if number >= present)
                if not numbers:
                    outcomes[each.name] = InvalidRequest("only further partitions can be added there")
                else:
                    replicas = [each.assignments[number] for number in numbers]
                    added.append(PartitionsRequest(each.name, numbers[-1] + 1, replicas))
            if added:
                outcomes.update(self._controller.create_partitions(added))
            self._settle([(each, outcomes[each.name]) for each in part], "the partitions are added")

    def _waits(self, request: RequestedTopic) -> bool:
        """Returns whether a topic has to wait, because all replicas of a partition are on brokers that are fenced."""
        image = self._controller.image
        fenced = next(
            (
                replicas
                for replicas in request.assignments.values()
                if replicas
                and all(BrokerId(each) in image.brokers for each in replicas)
                and not any(image.is_active(BrokerId(each)) for each in replicas)
            ),
            None,
        )
        if fenced is None:
            self._waiting.discard(request.node)
        elif request.node not in self._waiting:
            self._waiting.add(request.node)
            self._log.warning("%.200s waits for broker %s, which is not live: start it", request.node, fenced[0])
        return fenced is not None

    def _serve_deletions(self, requests: Sequence[OutsideRequest]) -> None:
        outcomes: Mapping[str | UUID, KafkaError | None]
        for part in _slices(_of(RequestedDeletion, requests)):
            if self._config().delete_topic_enable:
                outcomes = self._controller.delete_topics([each.name for each in part])
            else:
                disabled = TopicDeletionDisabled("Topic deletion is disabled by delete.topic.enable=false")
                outcomes = {each.name: disabled for each in part}
            self._settle([(each, outcomes[each.name]) for each in part], "the topic is deleted")

    # -- settings ---------------------------------------------------------------------------------------------------

    def _serve_configs(self, requests: Sequence[OutsideRequest]) -> None:
        for part in _slices(_of(RequestedConfig, requests)):
            altered = self._controller.alter_configs(
                [(ConfigResource(each.resource_type, each.name), list(each.config.items())) for each in part]
            )
            self._settle([(each, error) for each, (_, error) in zip(part, altered)], "the settings are taken over")

    # -- replicas and leaders ---------------------------------------------------------------------------------------

    def _serve_reassignments(self, requests: Sequence[OutsideRequest]) -> None:
        wanted = list(_of(RequestedReassignment, requests))
        asked = {(each.topic, each.partition): each.replicas for each in wanted}
        self._started = {key: ids for key, ids in self._started.items() if asked.get(key) == ids}
        new = [each for each in wanted if (each.topic, each.partition) not in self._started]
        for part in _slices(new):
            outcomes = self._controller.alter_reassignments(
                [Reassignment(each.topic, each.partition, tuple(map(BrokerId, each.replicas))) for each in part]
            )
            refused = [each for each in part if outcomes[each.topic, each.partition] is not None]
            self._settle([(each, outcomes[each.topic, each.partition]) for each in refused], "")
            begun = [each for each in part if outcomes[each.topic, each.partition] is None]
            self._started.update({(each.topic, each.partition): each.replicas for each in begun})
            self._say("%.200s: the reassignment has begun", begun)
        ended = [
            each for each in wanted if (each.topic, each.partition) in self._started and not self._is_in_progress(each)
        ]
        self._settle([(each, None) for each in ended], "the reassignment has ended")

    def _is_in_progress(self, request: RequestedReassignment) -> bool:
        """Returns whether the partition is being given these replicas. If it is not, it has them, or the reassignment
        was cancelled or replaced."""
        partition = self._controller.image.partition(request.topic, request.partition)
        if partition is None or not partition.is_reassigning:
            return False
        return request.replicas == tuple(each for each in partition.replicas if each not in partition.removing_replicas)

    def _serve_elections(self, requests: Sequence[OutsideRequest]) -> None:
        for part in _slices(_of(RequestedElection, requests)):
            outcomes = self._controller.elect_leaders(
                ElectionType.PREFERRED, list(dict.fromkeys((each.topic, each.partition) for each in part))
            )
            errors = [(each, outcomes[each.topic, each.partition]) for each in part]
            self._settle(
                [(each, None if isinstance(error, ElectionNotNeeded) else error) for each, error in errors],
                "the preferred leader leads",
            )

    # -- settling ---------------------------------------------------------------------------------------------------

    def _settle(self, outcomes: Sequence[tuple[OutsideRequest, KafkaError | None]], done: str) -> None:
        """Removes requests with these errors, or None for those that are carried out. The log says what is done."""
        if not outcomes:
            return
        self._say(f"%.200s: {done}", [each for each, error in outcomes if error is None])
        refused = [(each, error) for each, error in outcomes if error is not None]
        for request, error in refused[:_LINES_MAX]:
            fate = "put back as it was" if self._comes_back(request) else "removed"
            reason = error.message.removesuffix(".")
            self._log.warning(
                "%.200s is refused and %s: %.200s; write it again as it has to be", _label(request), fate, reason
            )
        if len(refused) > _LINES_MAX:
            self._log.warning("%d more of these requests are refused", len(refused) - _LINES_MAX)
        settled = [each for each, _ in outcomes]
        if not self._registry.settle_requests(settled, controller_epoch=self._epoch):
            raise RequestTimedOut("another broker is the controller")

    def _comes_back(self, request: OutsideRequest) -> bool:
        """Returns whether a node is of something that is there, so that it gets back what it had."""
        image = self._controller.image
        match request:
            case RequestedTopic():
                return request.name in image.topics
            case RequestedConfig(resource_type=ResourceType.BROKER):
                return bool(image.broker_config(request.name))
            case RequestedConfig():
                return request.name in image.topics
            case UnreadableRequest():
                return request.comes_back
        return False

    def _say(self, text: str, requests: Sequence[OutsideRequest]) -> None:
        for request in requests[:_LINES_MAX]:
            self._log.info(text, _label(request))
        if len(requests) > _LINES_MAX:
            self._log.info(text, f"{len(requests) - _LINES_MAX} more")


def _of(kind: type[R], requests: Iterable[OutsideRequest]) -> Iterator[R]:
    return (each for each in requests if isinstance(each, kind))


def _slices(requests: Iterable[T], size: Callable[[T], int] = lambda _: 1, most: int = _AT_A_TIME) -> Iterator[list[T]]:
    """Yields the requests in parts of this size at most, or of one request."""
    part: list[T] = []
    total = 0
    for request in requests:
        if part and total + size(request) > most:
            yield part
            part, total = [], 0
        part.append(request)
        total += size(request)
    if part:
        yield part


def _error(result: TopicImage | KafkaError) -> KafkaError | None:
    return result if isinstance(result, KafkaError) else None


def _label(request: OutsideRequest) -> str:
    if isinstance(request, RequestedReassignment | RequestedElection):
        return f"{request.node}: {request.topic}-{request.partition}"
    return request.node
