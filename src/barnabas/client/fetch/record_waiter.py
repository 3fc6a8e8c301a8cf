"""A question for new records that brokers hold back until there are some.

It is one Fetch for each leader, outside of sessions. One broker's news is enough; what others hold back meanwhile stays
with them and counts for the next wait.
"""

from collections.abc import Mapping
from typing import Any, Final

from barnabas.client.consumer.fetch_requests import FETCH_ROLE
from barnabas.client.fetch.fetch_request import FetchRules, FetchTask
from barnabas.client.fetch.fetch_session import FINAL_EPOCH, NO_SESSION, ZERO_ID, SessionRequest, Wanted
from barnabas.connection.broker.client_request import ClientRequest, Error
from barnabas.connection.network_client import NetworkClient, Node
from barnabas.connection.promise import Promise
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.types import TopicPartition

__all__ = ["RecordWaiter"]

_BYTES_MAX: Final = 1
"""Brokers send one batch all the same; nobody looks at it."""


class RecordWaiter:
    """See the module. One wait at a time."""

    def __init__(self, client: NetworkClient) -> None:
        self._client = client
        self._out: set[int] = set()
        """Nodes that have a request of ours. An answer comes after those before it on its connection, so there is never
        a second one."""
        self._wanted: dict[int, dict[TopicPartition, Wanted]] = {}
        self._until = float("-inf")
        self._rules = FetchRules(max_bytes=_BYTES_MAX)
        self._news: Promise[None] = Promise()

    def wait(self, offsets: Mapping[TopicPartition, int], seconds: float, *, read_committed: bool) -> Promise[None]:
        """Settled once there may be a record at or behind one of the offsets, or something is wrong, such as a leader
        that is not known; after so many seconds it is of no use."""
        news = self._news = Promise()
        self._rules = self._rules._replace(read_committed=read_committed)
        self._until = self._client.now + seconds
        self._wanted = {}
        topics = {where.topic for where in offsets}
        self._client.metadata.unwant(set(self._client.metadata.wanted) - topics)
        self._client.want_topics(topics)
        for where, offset in offsets.items():
            self._want(where, offset)
        for node in self._wanted.keys() - self._out:
            self._send(node)
        return news

    def _want(self, where: TopicPartition, offset: int) -> None:
        metadata = self._client.metadata
        leader, known = metadata.leader(where), metadata.partition(where)
        if leader < 0 or known is None:
            metadata.mark_stale()
            self._news.resolve(None)
            return
        wanted = Wanted(metadata.topic_id(where.topic), offset, known.leader_epoch, _BYTES_MAX)
        self._wanted.setdefault(leader, {})[where] = wanted

    def _send(self, node: int) -> None:
        wanted = self._wanted[node]
        has_ids = all(each.topic_id != ZERO_ID for each in wanted.values())
        request = SessionRequest(NO_SESSION, FINAL_EPOCH, wanted, (), (), wanted, has_ids)
        wait_s = max(self._until - self._client.now, 0.0)
        task = FetchTask(node, request, round(wait_s * 1000), self._rules)
        self._out.add(node)
        timeout_s = self._client.settings.connection.request_timeout_s + wait_s
        call = ClientRequest(
            FetchRequest,
            lambda response, error: self._answered(node, response, error),
            build=task.request,
            at_most=task.at_most,
            timeout_s=timeout_s,
        )
        self._client.send(call, Node(node, FETCH_ROLE))

    def _answered(self, node: int, response: Any, error: Error | None) -> None:
        self._out.discard(node)
        answers = () if error else [answer for topic in response.responses for answer in topic.partitions]
        if error or response.error_code or any(answer.error_code for answer in answers):
            self._client.metadata.mark_stale()
            self._news.resolve(None)
        elif any(answer.records for answer in answers):
            self._news.resolve(None)
        elif not self._news.done and node in self._wanted and self._client.now < self._until:
            self._send(node)  # that was an earlier wait's
