"""What all administrative calls share: a cluster, its deadline, and who must be asked."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeVar

from barnabas.client.cluster import Cluster
from barnabas.client.core.admin.topics import partition_answers
from barnabas.client.deadline import Deadline
from barnabas.errors import BarnabasError, KafkaError, NotController, error_for
from barnabas.protocol.schema import Request
from barnabas.types import TopicPartition

__all__ = ["AdminBase"]

T = TypeVar("T")


class AdminBase:
    """Routing and retries over one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @property
    def _timeout_ms(self) -> int:
        return int(self.cluster.timeout_s * 1000)

    def _retrying(self, operation: Callable[[Deadline], T], *, stale: Iterable[str] = ()) -> T:
        """As Cluster.retrying; `stale` topics are looked up again before another try."""

        def before_retry(_: BarnabasError) -> None:
            self.cluster.forget(stale)

        return self.cluster.retrying(operation, before_retry=before_retry)

    def _on_node(self, request: Request, node_id: int) -> Any:
        return self._retrying(lambda deadline: self.cluster.call(request, deadline=deadline, node_id=node_id))

    def _call_controller(self, request: Request, codes: Callable[[Any], Sequence[int]]) -> Any:
        """Send to the controller as Metadata names it; again if it is no longer (error 41, nothing was done then)."""

        def once(deadline: Deadline) -> Any:
            view = self.cluster.refresh((), deadline=deadline)
            node_id = view.controller_id if view.controller_id in view.brokers else None
            response = self.cluster.call(request, deadline=deadline, node_id=node_id)
            if NotController.code in codes(response):
                raise error_for(NotController.code, "the controller moved")
            return response

        return self._retrying(once)

    def _by_leader(
        self,
        partitions: Collection[TopicPartition],
        request: Callable[[Collection[TopicPartition]], Request],
        answers: Callable[[Any], Iterable[tuple[TopicPartition, int, Any]]] = partition_answers,
        *,
        node_id: int | None = None,
    ) -> dict[TopicPartition, Any]:
        """Ask each partition's leader, or one node for all; what fails with a retriable error is asked again, from the
        new leader."""
        done: dict[TopicPartition, Any] = {}

        def once(deadline: Deadline) -> None:
            groups: dict[int, list[TopicPartition]] = {}
            for tp in partitions:
                if tp not in done:
                    target = self.cluster.leader(*tp, deadline=deadline) if node_id is None else node_id
                    groups.setdefault(target, []).append(tp)
            failed: KafkaError | None = None
            for target, asked in groups.items():
                for tp, code, answer in answers(self.cluster.call(request(asked), deadline=deadline, node_id=target)):
                    if not code:
                        done[tp] = answer
                        continue
                    error = error_for(code, f"{tp}: {error_for(code)}")
                    if not error.retriable:
                        raise error
                    failed = error
            if failed is not None:
                raise failed

        self._retrying(once, stale=[*{tp.topic for tp in partitions}])
        return done
