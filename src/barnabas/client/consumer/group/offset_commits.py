"""Commits offsets of a group, on request or at intervals, and fetches committed offsets.

A member commits in its generation only. During a rebalance a commit fails with RebalanceInProgress, and in a later
generation with CommitFailed. A commit keeps its generation for all its retries: in a later generation another member
may have the partitions, and may have committed more. Without a subscription a consumer commits without being a member.
"""

import logging
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

from barnabas.client.consumer.group.generation import Generation, MemberState, explained
from barnabas.client.consumer.group.membership import Membership
from barnabas.client.offset_messages import (
    NAMES_UNTIL,
    OffsetAndMetadata,
    commit_answers,
    commit_request,
    committed_answers,
    committed_request,
)
from barnabas.connection.broker.client_request import Error
from barnabas.connection.flow import settle
from barnabas.connection.network_client import Coordinator, NetworkClient
from barnabas.connection.promise import Promise, resolved
from barnabas.connection.retry import RequestBuilder, Retry
from barnabas.connection.timers import NEVER
from barnabas.errors import (
    ClientError,
    CommitFailed,
    FencedInstanceId,
    GroupAuthorizationFailed,
    IllegalGeneration,
    KafkaError,
    RebalanceInProgress,
    TopicAuthorizationFailed,
    UnknownMemberId,
    UsageError,
    error_for,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest
from barnabas.types import TopicPartition

__all__ = ["AutoCommit", "OffsetCommits", "Offsets"]

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


_log = logging.getLogger("barnabas.consumer")


class OffsetCommits:
    def __init__(
        self,
        client: NetworkClient,
        group_id: str,
        group_instance_id: str | None,
        membership: Membership,
        on_committed: Callable[[Offsets], None] | None = None,
    ) -> None:
        self.group_id = group_id
        self.sent = 0
        self.client = client
        self._membership = membership
        self._on_committed = on_committed
        self._instance_id = group_instance_id
        self._coordinator = Coordinator(group_id)
        self._in_flight: dict[Commit, None] = {}
        """The commits in flight, in the order of the calls."""

    def commit(self, offsets: Offsets, *, timeout_s: float | None = None) -> Promise[None]:
        """Commits these offsets, and retries for `timeout_s`, or with None not at all. The retry of an earlier commit
        does not overwrite a later commit."""
        promise: Promise[None] = Promise()
        if not offsets:
            promise.resolve(None)
            return promise
        for partition, committed in offsets.items():
            if committed.offset < 0:
                promise.fail(
                    UsageError(f"{partition}: offset {committed.offset} is negative; give the next one to read")
                )
                return promise

        def failed(flow: Promise[None]) -> None:
            if flow.error is not None:
                promise.fail(flow.error)

        wait_s, retries = (NEVER, 0) if timeout_s is None else (timeout_s, sys.maxsize)
        retry = Retry(self.client, timeout_s=wait_s, retries=retries, gave_up="the commit was given up")
        commit = Commit(dict(offsets), retry.end_at_deadline(promise))
        self._in_flight[commit] = None
        promise.on_done(lambda _: self._in_flight.pop(commit))
        settle(self._commit(commit, retry)).on_done(failed)
        return promise

    def committed(
        self, partitions: Collection[TopicPartition], timeout_s: float
    ) -> Promise[dict[TopicPartition, OffsetAndMetadata | None]]:
        """Promises the committed offset of each partition, None for a partition without one."""
        wanted = list(partitions)
        if not wanted:
            return resolved({})

        def check(response: Any) -> KafkaError | None:
            code, answers = committed_answers(response)
            if code:
                return self._explained(error_for(code))
            for partition, (partition_code, _) in answers.items():
                if partition_code:
                    return error_for(partition_code, f"committed offset of {partition}: {error_for(partition_code)}")
            return None

        request = RequestBuilder(
            OffsetFetchRequest,
            lambda version: committed_request(version, self.group_id, wanted, require_stable=True),
            at_most=NAMES_UNTIL,
        )

        async def fetch() -> dict[TopicPartition, OffsetAndMetadata | None]:
            retry = Retry(self.client, timeout_s=timeout_s)
            answers = committed_answers(await retry.send(request, self._coordinator, check))[1]
            return {partition: answers[partition][1] if partition in answers else None for partition in wanted}

        return settle(fetch())

    # --- one try ----------------------------------------------------------------------------------------------------

    def _generation(self) -> Generation:
        """Returns the generation to commit in. Raises RebalanceInProgress or CommitFailed."""
        membership = self._membership
        if not membership.is_subscribed:
            return Generation()
        if membership.state is MemberState.STABLE:
            return membership.generation
        if membership.rebalancing:
            raise self._in_progress()
        raise self._moved_on("it is not a member now")

    def _moved_on(self, why: str) -> CommitFailed:
        return CommitFailed(
            f"group {self.group_id!r} has moved on without this consumer ({why}), its partitions may be with others:"
            " poll joins it again; if the application polls too seldom, see max.poll.interval.ms and max.poll.records"
        )

    async def _commit(self, commit: "Commit", retry: Retry) -> None:
        made_in: Generation | None = None
        while not commit.promise.done:
            made_in = self._generation() if made_in is None else self._same_generation(made_in)
            sent, generation = dict(commit.offsets), made_in
            request = commit_request(
                self.group_id,
                sent,
                generation_id=generation.generation_id,
                member_id=generation.member_id,
                group_instance_id=self._instance_id if generation.member_id else None,
            )

            def check(response: Any, generation: Generation = generation) -> Error | None:
                error = self._error_in(commit_answers(response))
                return None if error is None else self._on_error(error, generation)

            self.sent += 1
            try:
                await retry.send_once(RequestBuilder(request, at_most=NAMES_UNTIL), self._coordinator, check)
            except (KafkaError, ClientError) as error:
                if not error.retriable or not retry.retries:
                    raise
                await retry.pause(error)
                while not commit.promise.done and (later := self._later_than(commit)) is not None:
                    await later.promise.settled()
            else:
                if self._on_committed is not None:
                    self._on_committed(sent)
                self._supersede(commit, sent)
                commit.promise.resolve(None)

    def _error_in(self, codes: Mapping[TopicPartition, int]) -> KafkaError | None:
        """Returns the error of a response. Unauthorized topics count only if there is no other error."""
        denied: list[str] = []
        for partition, code in codes.items():
            if code == TopicAuthorizationFailed.code:
                denied.append(partition.topic)
            elif code:
                error = error_for(code)
                return self._explained(error, f"commit of {partition}: {error}")
        if denied:
            names = ", ".join(sorted(set(denied)))
            return TopicAuthorizationFailed(f"this user may not commit offsets of {names}; it needs the right to READ")
        return None

    def _explained(self, error: KafkaError, text: str = "") -> KafkaError:
        text = text or str(error)
        if isinstance(error, GroupAuthorizationFailed):
            text = "this user may not use it; it needs the right to READ the group"
        return error_for(error.code, f"group {self.group_id!r}: {text}")

    def _on_error(self, error: Error, sent: Generation) -> Error:
        """Reports an error to the membership, and returns the error for the application."""
        membership = self._membership
        if isinstance(error, UnknownMemberId | IllegalGeneration | FencedInstanceId):
            if not membership.is_subscribed or not sent.member_id:
                return CommitFailed(
                    f"group {self.group_id!r} has members, so they alone commit; a consumer with assigned partitions"
                    " needs a group of its own"
                )
            if membership.generation == sent:
                if isinstance(error, FencedInstanceId):
                    return explained(error, membership.settings)
                membership.reset_on_error(error, "OffsetCommit")
            elif membership.rebalancing:
                return self._in_progress()
            return self._moved_on(error.kafka_name)
        if isinstance(error, RebalanceInProgress):
            membership.request_rejoin("the group is rebalancing")
            return self._in_progress()
        return error

    def _in_progress(self) -> RebalanceInProgress:
        return RebalanceInProgress(
            f"group {self.group_id!r} is rebalancing; the next polls complete that, then commit again"
        )

    def _same_generation(self, made_in: Generation) -> Generation:
        """Returns the generation that a commit was made in. Raises RebalanceInProgress or CommitFailed if this consumer
        is not, or no longer, a stable member of it."""
        now = self._generation()
        if now != made_in:
            raise self._moved_on(
                f"the commit was made in generation {made_in.generation_id}, this is generation {now.generation_id}"
            )
        return made_in

    def _later_than(self, commit: "Commit") -> "Commit | None":
        """Returns the last commit after this one that has some of its partitions."""
        for other in reversed(self._in_flight):
            if other is commit:
                break
            if not other.offsets.keys().isdisjoint(commit.offsets):
                return other
        return None

    def _supersede(self, commit: "Commit", offsets: Offsets) -> None:
        """Removes the partitions of a successful commit from earlier commits, which must not be retried for them."""
        for other in list(self._in_flight):
            if other is commit:
                break
            other.leave_out(offsets)


class Commit:
    """A commit with its retries. `promise` is settled when it has ended."""

    def __init__(self, offsets: dict[TopicPartition, OffsetAndMetadata], promise: Promise[None]) -> None:
        self.offsets = offsets
        self.promise = promise

    def leave_out(self, offsets: Offsets) -> None:
        """Drops the partitions for which a later commit has succeeded."""
        for topic_partition in offsets:
            self.offsets.pop(topic_partition, None)
        if not self.offsets:
            self.promise.resolve(None)


class AutoCommit:
    """Commits the result of `processed_offsets` every auto.commit.interval.ms, if that is enabled."""

    def __init__(
        self,
        commits: OffsetCommits,
        interval_s: float,
        processed_offsets: Callable[[], Offsets],
        *,
        enabled: bool = True,
    ) -> None:
        self.is_enabled = enabled
        self._commits = commits
        self._interval_s = interval_s
        self._processed_offsets = processed_offsets
        self._due = float("inf")
        self._is_in_flight = False

    def start(self) -> None:
        """Begins the first interval after an assignment."""
        if self.is_enabled:
            self._due = self._commits.client.now + self._interval_s

    def stop(self) -> None:
        self._due = float("inf")

    def enable(self, enabled: bool) -> None:
        self.is_enabled = enabled
        if enabled:
            self.start()
        else:
            self.stop()

    def advance(self, now: float) -> None:
        if now >= self._due and not self._is_in_flight:
            self.commit()

    def next_deadline(self) -> float:
        return float("inf") if self._is_in_flight else self._due

    def commit(self, timeout_s: float | None = None) -> Promise[None]:
        """Commits now, if that is enabled. Errors are logged; with a timeout retriable ones are retried."""
        if not self.is_enabled:
            return resolved(None)
        client = self._commits.client
        if self._due < float("inf"):
            self._due = client.now + self._interval_s
        offsets = self._processed_offsets()
        promise = self._commits.commit(offsets, timeout_s=timeout_s)
        self._is_in_flight = True

        def done(promise: Promise[None]) -> None:
            self._is_in_flight = False
            error = promise.error
            if error is None:
                return
            passes = isinstance(error, RebalanceInProgress) or getattr(error, "retriable", False)
            if passes and self._due < float("inf"):
                self._due = min(self._due, client.now + client.backoff_s(1))
                _log.debug("auto-commit of %d partitions fails and is tried again: %s", len(offsets), error)
            else:
                _log.warning("auto-commit of %d partitions fails: %s", len(offsets), error)

        promise.on_done(done)
        return promise
