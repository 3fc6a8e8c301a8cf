"""Committed offsets of a group: committing them, now or by and by, and asking for them.

A member commits in its generation only: while the group rebalances a commit fails with RebalanceInProgress, and once
the group has moved on with CommitFailed. A commit keeps the generation that it was made in for all its tries: in a
later one another member may have the partitions and have committed more. Without a subscription a consumer commits from
outside the group.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

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
from barnabas.connection.broker.client_request import ClientRequest, Error
from barnabas.connection.network_client import Coordinator, NetworkClient
from barnabas.connection.promise import Promise
from barnabas.connection.retry import ask
from barnabas.errors import (
    Attempt,
    ClientError,
    CommitFailed,
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupAuthorizationFailed,
    IllegalGeneration,
    KafkaError,
    NotCoordinator,
    OperationTimedOut,
    RebalanceInProgress,
    RequestTimedOut,
    TopicAuthorizationFailed,
    UnknownMemberId,
    UsageError,
    error_for,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest
from barnabas.types import TopicPartition

__all__ = ["AutoCommit", "OffsetCommits", "Offsets"]

Offsets = Mapping[TopicPartition, OffsetAndMetadata]

ATTEMPTS_KEPT: Final = 20
_MOVED: Final = (NotCoordinator, CoordinatorNotAvailable, RequestTimedOut)

_log = logging.getLogger("barnabas.consumer")


class OffsetCommits:
    """See the module. `membership` is None, or that of a consumer that subscribes."""

    def __init__(self, client: NetworkClient, group_id: str, group_instance_id: str | None = None) -> None:
        self.group_id = group_id
        self.membership: Membership | None = None
        """Set while partitions come from the group."""
        self.sent = 0
        self.on_committed: list[Callable[[Offsets], None]] = []
        self._client = client
        self._instance_id = group_instance_id
        self._coordinator = Coordinator(group_id)
        self._under_way: dict[_Committing, None] = {}
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
        _Committing(self, dict(offsets), timeout_s, promise)
        return promise

    def committed(
        self, partitions: Collection[TopicPartition], timeout_s: float
    ) -> Promise[dict[TopicPartition, OffsetAndMetadata | None]]:
        """What is committed for each of these, None for nothing."""
        found: Promise[dict[TopicPartition, OffsetAndMetadata | None]] = Promise()
        wanted = list(partitions)
        if not wanted:
            found.resolve({})
            return found

        def check(response: Any) -> KafkaError | None:
            code, answers = committed_answers(response)
            if code:
                return self._explained(error_for(code))
            for where, (partition_code, _) in answers.items():
                if partition_code:
                    return error_for(partition_code, f"committed offset of {where}: {error_for(partition_code)}")
            return None

        def done(promise: Promise[Any]) -> None:
            if promise.error is not None:
                found.fail(promise.error)
                return
            answers = committed_answers(promise.result())[1]
            found.resolve({where: answers[where][1] if where in answers else None for where in wanted})

        ask(
            self._client,
            OffsetFetchRequest,
            self._coordinator,
            timeout_s=timeout_s,
            build=lambda version: committed_request(version, self.group_id, wanted, require_stable=True),
            at_most=NAMES_UNTIL,
            check=check,
        ).on_done(done)
        return found

    # --- one try ----------------------------------------------------------------------------------------------------

    def identity(self) -> Generation:
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

    def send(self, offsets: Offsets, identity: Generation, done: Callable[[Error | None], None]) -> None:
        """One request; `done` hears its outcome, which membership has taken in."""
        request = commit_request(
            self.group_id,
            offsets,
            generation_id=identity.generation_id,
            member_id=identity.member_id,
            group_instance_id=self._instance_id if identity.member_id else None,
        )

        def answered(response: Any, error: Error | None) -> None:
            if error is None:
                error = self._outcome(commit_answers(response))
            if error is not None:
                error = self._judge(error, identity)
            done(error)

        self.sent += 1
        self._client.send(ClientRequest(request, answered, at_most=NAMES_UNTIL), self._coordinator)

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
        if isinstance(error, (ClientError, *_MOVED)):
            self._client.forget_coordinator(self._coordinator)
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

    def identity_still(self, made_in: Generation) -> Generation:
        """Returns the generation that a commit was made in. Raises RebalanceInProgress or CommitFailed if this consumer
        is not, or no longer, a stable member of it."""
        now = self.identity()
        if now != made_in:
            raise self._moved_on(
                f"the commit was made in generation {made_in.generation_id}, this is generation {now.generation_id}"
            )
        return made_in

    def succeeded(self, offsets: Offsets) -> None:
        for listener in self.on_committed:
            listener(offsets)

    def begin(self, commit: "_Committing") -> None:
        """It is under way until its promise is settled."""
        self._under_way[commit] = None
        commit.promise.on_done(lambda _: self._under_way.pop(commit))

    def later_than(self, commit: "_Committing") -> "_Committing | None":
        """The last one that was asked for after it and is about some of its partitions."""
        for other in reversed(self._under_way):
            if other is commit:
                break
            if not other.offsets.keys().isdisjoint(commit.offsets):
                return other
        return None

    def supersede(self, commit: "_Committing", offsets: Offsets) -> None:
        """It has succeeded with these: what was asked for before it must not be tried again."""
        for other in list(self._under_way):
            if other is commit:
                break
            other.leave_out(offsets)

    @property
    def client(self) -> NetworkClient:
        return self._client


class _Committing:
    """One commit with its retries."""

    def __init__(
        self,
        commits: OffsetCommits,
        offsets: dict[TopicPartition, OffsetAndMetadata],
        timeout_s: float | None,
        promise: Promise[None],
    ) -> None:
        self.offsets = offsets
        self.promise = promise
        self._commits = commits
        self._timeout_s = timeout_s
        self._failures = 0
        self._attempts: list[Attempt] = []
        self._last: Error | None = None
        self._made_in: Generation | None = None
        """None until the first try."""
        if timeout_s is not None:
            timer = commits.client.at(commits.client.now + timeout_s, self._give_up)
            promise.on_done(lambda _: timer.cancel())
        commits.begin(self)
        self._try()

    def leave_out(self, offsets: Offsets) -> None:
        """Of these partitions something later is committed."""
        for where in offsets:
            self.offsets.pop(where, None)
        if not self.offsets:
            self.promise.resolve(None)

    def _try(self) -> None:
        if self.promise.done:
            return
        later = self._commits.later_than(self) if self._failures else None
        if later is not None:
            later.promise.on_done(lambda _: self._try())
            return
        commits, made_in = self._commits, self._made_in
        try:
            self._made_in = commits.identity() if made_in is None else commits.identity_still(made_in)
        except (RebalanceInProgress, CommitFailed) as error:
            self.promise.fail(error)
            return
        sent = dict(self.offsets)
        commits.send(sent, self._made_in, lambda error: self._done(sent, error))

    def _done(self, sent: Offsets, error: Error | None) -> None:
        if error is None:
            self._commits.succeeded(sent)
            self._commits.supersede(self, sent)
            self.promise.resolve(None)
            return
        self._last = error
        if isinstance(error, ClientError):
            self._attempts = [*self._attempts, *error.attempts][-ATTEMPTS_KEPT:]
        if self._timeout_s is None or not error.retriable:
            self.promise.fail(error)
            return
        self._failures += 1
        client = self._commits.client
        client.at(client.now + client.backoff_s(self._failures), self._try)

    def _give_up(self) -> None:
        if isinstance(self._last, KafkaError):
            self.promise.fail(self._last)
            return
        attempts = tuple(self._attempts) or self._commits.client.unreachable().attempts
        why = self._last or (self._commits.client.unreachable() if attempts else "no answer came")
        self.promise.fail(OperationTimedOut(f"the commit was given up after {self._timeout_s:g} s: {why}", attempts))


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
