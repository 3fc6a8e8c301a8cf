"""Committed offsets of a group: committing them, now or by and by, and asking for them.

A member commits in its generation only: while the group rebalances a commit fails with RebalanceInProgress, and once
the group has moved on with CommitFailed. A commit keeps the generation that it was made in for all its tries: in a
later one another member may have the partitions and have committed more. Without a subscription a consumer commits from
outside the group.
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
    """See the module. `membership` is None, or that of a consumer that subscribes."""

    def __init__(self, client: NetworkClient, group_id: str, group_instance_id: str | None = None) -> None:
        self.group_id = group_id
        self.membership: Membership | None = None
        """Set while partitions come from the group."""
        self.sent = 0
        self.on_committed: list[Callable[[Offsets], None]] = []
        self.client = client
        self._instance_id = group_instance_id
        self._coordinator = Coordinator(group_id)
        self._in_flight: dict[Commit, None] = {}
        """In the order in which they were asked for."""

    def commit(self, offsets: Offsets, *, timeout_s: float | None = None) -> Promise[None]:
        """Commit these. What passes is tried again for `timeout_s`; None: one try. What was asked for later stands: the
        repeat of an earlier commit, which may be one that nobody waits for any more, does not overtake it."""
        promise: Promise[None] = Promise()
        if not offsets:
            promise.resolve(None)
            return promise
        for where, committed in offsets.items():
            if committed.offset < 0:
                promise.fail(UsageError(f"{where}: offset {committed.offset} is negative; give the next one to read"))
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
        """What is committed for each of these, None for nothing."""
        wanted = list(partitions)
        if not wanted:
            return resolved({})

        def check(response: Any) -> KafkaError | None:
            code, answers = committed_answers(response)
            if code:
                return self._explained(error_for(code))
            for where, (partition_code, _) in answers.items():
                if partition_code:
                    return error_for(partition_code, f"committed offset of {where}: {error_for(partition_code)}")
            return None

        request = RequestBuilder(
            OffsetFetchRequest,
            lambda version: committed_request(version, self.group_id, wanted, require_stable=True),
            at_most=NAMES_UNTIL,
        )

        async def fetch() -> dict[TopicPartition, OffsetAndMetadata | None]:
            retry = Retry(self.client, timeout_s=timeout_s)
            answers = committed_answers(await retry.send(request, self._coordinator, check))[1]
            return {where: answers[where][1] if where in answers else None for where in wanted}

        return settle(fetch())

    # --- one try ----------------------------------------------------------------------------------------------------

    def _identity(self) -> Generation:
        """Whom to commit as. Raises RebalanceInProgress or CommitFailed."""
        membership = self.membership
        if membership is None:
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
            made_in = self._identity() if made_in is None else self._identity_still(made_in)
            sent, identity = dict(commit.offsets), made_in
            request = commit_request(
                self.group_id,
                sent,
                generation_id=identity.generation_id,
                member_id=identity.member_id,
                group_instance_id=self._instance_id if identity.member_id else None,
            )

            def check(response: Any, identity: Generation = identity) -> Error | None:
                error = self._outcome(commit_answers(response))
                return None if error is None else self._judge(error, identity)

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
                for listener in self.on_committed:
                    listener(sent)
                self._supersede(commit, sent)
                commit.promise.resolve(None)

    def _outcome(self, codes: Mapping[TopicPartition, int]) -> KafkaError | None:
        """The error that decides; unauthorized topics only if there is nothing worse."""
        denied: list[str] = []
        for where, code in codes.items():
            if code == TopicAuthorizationFailed.code:
                denied.append(where.topic)
            elif code:
                error = error_for(code)
                return self._explained(error, f"commit of {where}: {error}")
        if denied:
            names = ", ".join(sorted(set(denied)))
            return TopicAuthorizationFailed(f"this user may not commit offsets of {names}; it needs the right to READ")
        return None

    def _explained(self, error: KafkaError, text: str = "") -> KafkaError:
        text = text or str(error)
        if isinstance(error, GroupAuthorizationFailed):
            text = "this user may not use it; it needs the right to READ the group"
        return error_for(error.code, f"group {self.group_id!r}: {text}")

    def _judge(self, error: Error, sent: Generation) -> Error:
        """What an error means for the membership, and which one the application hears."""
        membership = self.membership
        if isinstance(error, UnknownMemberId | IllegalGeneration | FencedInstanceId):
            if membership is None or not sent.member_id:
                return CommitFailed(
                    f"group {self.group_id!r} has members, so they alone commit; a consumer with assigned partitions"
                    " needs a group of its own"
                )
            if membership.generation == sent:
                if isinstance(error, FencedInstanceId):
                    return explained(error, membership.settings)
                membership.expelled(error, "OffsetCommit")
            elif membership.rebalancing:
                return self._in_progress()
            return self._moved_on(error.kafka_name)
        if isinstance(error, RebalanceInProgress):
            if membership is not None:
                membership.request_rejoin("the group is rebalancing")
            return self._in_progress()
        return error

    def _in_progress(self) -> RebalanceInProgress:
        return RebalanceInProgress(
            f"group {self.group_id!r} is rebalancing; the next polls complete that, then commit again"
        )

    def _identity_still(self, made_in: Generation) -> Generation:
        """Returns the generation that a commit was made in. Raises RebalanceInProgress or CommitFailed if this consumer
        is not, or no longer, a stable member of it."""
        now = self._identity()
        if now != made_in:
            raise self._moved_on(
                f"the commit was made in generation {made_in.generation_id}, this is generation {now.generation_id}"
            )
        return made_in

    def _later_than(self, commit: "Commit") -> "Commit | None":
        """The last one that was asked for after it and is about some of its partitions."""
        for other in reversed(self._in_flight):
            if other is commit:
                break
            if not other.offsets.keys().isdisjoint(commit.offsets):
                return other
        return None

    def _supersede(self, commit: "Commit", offsets: Offsets) -> None:
        """It has succeeded with these: what was asked for before it must not be tried again."""
        for other in list(self._in_flight):
            if other is commit:
                break
            other.leave_out(offsets)


class Commit:
    """One commit with its retries; `promise` is settled when it has ended."""

    def __init__(self, offsets: dict[TopicPartition, OffsetAndMetadata], promise: Promise[None]) -> None:
        self.offsets = offsets
        self.promise = promise

    def leave_out(self, offsets: Offsets) -> None:
        """Drops the partitions for which something later is committed."""
        for topic_partition in offsets:
            self.offsets.pop(topic_partition, None)
        if not self.offsets:
            self.promise.resolve(None)


class AutoCommit:
    """Commits what was read every auto.commit.interval.ms. `read` says what that is now."""

    def __init__(self, commits: OffsetCommits, interval_s: float, read: Callable[[], Offsets]) -> None:
        self._commits = commits
        self._interval_s = interval_s
        self._read = read
        self._due = float("inf")
        self._under_way = False

    def start(self) -> None:
        """There are partitions whose offsets may be committed, from now on; count the interval anew."""
        self._due = self._commits.client.now + self._interval_s

    def stop(self) -> None:
        self._due = float("inf")

    def advance(self, now: float) -> None:
        if now >= self._due and not self._under_way:
            self.commit()

    def next_deadline(self) -> float:
        return float("inf") if self._under_way else self._due

    def commit(self, timeout_s: float | None = None) -> Promise[None]:
        """Commit now; failures are logged. With a timeout what passes is tried again."""
        client = self._commits.client
        if self._due < float("inf"):
            self._due = client.now + self._interval_s
        offsets = self._read()
        promise = self._commits.commit(offsets, timeout_s=timeout_s)
        self._under_way = True

        def done(promise: Promise[None]) -> None:
            self._under_way = False
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
