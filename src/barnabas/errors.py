"""Every error that Barnabas raises on purpose: a broker's answers, and what keeps a client from getting one.

KafkaError has a class for each error of Kafka's table, with the numeric code that stands for it on the wire. A handler
of the broker raises or returns one of these; its code becomes part of a response at one edge. What is not a KafkaError
there is either the world's fault (OSError: the log directory fails) or ours, and stays loud.

ClientError and its subclasses are raised by the clients when no usable answer came. They list every attempt: at which
address, at which stage, and why it failed.

Source: the protocol's error code table. Retriable is the table's column: a client may send the same request again.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from barnabas.types import TopicPartition

NONE: Final = 0


class BarnabasError(Exception):
    """The root of everything that this package raises on purpose."""


class UsageError(BarnabasError):
    """The operator's or caller's input is wrong: the message names the thing, the rule and the way out."""


class KafkaError(BarnabasError):
    """An error with a place in Kafka's error table."""

    code: ClassVar[int] = -1
    kafka_name: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    retriable: ClassVar[bool] = False

    attempts: tuple[Any, ...] = ()
    """Where a client met it, if it knows (`Attempt`)."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or self.kafka_name)

    @property
    def message(self) -> str:
        return str(self.args[0])


class RetriableError(KafkaError):
    """Passes with time or after fresh metadata: the same request may be sent again."""

    retriable = True


class UnknownServerError(KafkaError):
    code, kafka_name = -1, "UNKNOWN_SERVER_ERROR"


class OffsetOutOfRange(KafkaError):
    code, kafka_name = 1, "OFFSET_OUT_OF_RANGE"


class CorruptMessage(RetriableError):
    code, kafka_name = 2, "CORRUPT_MESSAGE"


class UnknownTopicOrPartition(RetriableError):
    code, kafka_name = 3, "UNKNOWN_TOPIC_OR_PARTITION"


class InvalidFetchSize(KafkaError):
    code, kafka_name = 4, "INVALID_FETCH_SIZE"


class LeaderNotAvailable(RetriableError):
    code, kafka_name = 5, "LEADER_NOT_AVAILABLE"


class NotLeaderOrFollower(RetriableError):
    code, kafka_name = 6, "NOT_LEADER_OR_FOLLOWER"


class RequestTimedOut(RetriableError):
    code, kafka_name = 7, "REQUEST_TIMED_OUT"


class BrokerNotAvailable(KafkaError):
    code, kafka_name = 8, "BROKER_NOT_AVAILABLE"


class ReplicaNotAvailable(RetriableError):
    code, kafka_name = 9, "REPLICA_NOT_AVAILABLE"


class MessageTooLarge(KafkaError):
    code, kafka_name = 10, "MESSAGE_TOO_LARGE"


class StaleControllerEpoch(KafkaError):
    code, kafka_name = 11, "STALE_CONTROLLER_EPOCH"


class OffsetMetadataTooLarge(KafkaError):
    code, kafka_name = 12, "OFFSET_METADATA_TOO_LARGE"


class NetworkException(RetriableError):
    code, kafka_name = 13, "NETWORK_EXCEPTION"


class CoordinatorLoadInProgress(RetriableError):
    code, kafka_name = 14, "COORDINATOR_LOAD_IN_PROGRESS"


class CoordinatorNotAvailable(RetriableError):
    code, kafka_name = 15, "COORDINATOR_NOT_AVAILABLE"


class NotCoordinator(RetriableError):
    code, kafka_name = 16, "NOT_COORDINATOR"


class InvalidTopic(KafkaError):
    code, kafka_name = 17, "INVALID_TOPIC_EXCEPTION"


class RecordListTooLarge(KafkaError):
    code, kafka_name = 18, "RECORD_LIST_TOO_LARGE"


class NotEnoughReplicas(RetriableError):
    code, kafka_name = 19, "NOT_ENOUGH_REPLICAS"


class NotEnoughReplicasAfterAppend(RetriableError):
    code, kafka_name = 20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND"


class InvalidRequiredAcks(KafkaError):
    code, kafka_name = 21, "INVALID_REQUIRED_ACKS"


class IllegalGeneration(KafkaError):
    code, kafka_name = 22, "ILLEGAL_GENERATION"


class InconsistentGroupProtocol(KafkaError):
    code, kafka_name = 23, "INCONSISTENT_GROUP_PROTOCOL"


class InvalidGroupId(KafkaError):
    code, kafka_name = 24, "INVALID_GROUP_ID"


class UnknownMemberId(KafkaError):
    code, kafka_name = 25, "UNKNOWN_MEMBER_ID"


class InvalidSessionTimeout(KafkaError):
    code, kafka_name = 26, "INVALID_SESSION_TIMEOUT"


class RebalanceInProgress(KafkaError):
    code, kafka_name = 27, "REBALANCE_IN_PROGRESS"


class InvalidCommitOffsetSize(KafkaError):
    code, kafka_name = 28, "INVALID_COMMIT_OFFSET_SIZE"


class TopicAuthorizationFailed(KafkaError):
    code, kafka_name = 29, "TOPIC_AUTHORIZATION_FAILED"


class GroupAuthorizationFailed(KafkaError):
    code, kafka_name = 30, "GROUP_AUTHORIZATION_FAILED"


class ClusterAuthorizationFailed(KafkaError):
    code, kafka_name = 31, "CLUSTER_AUTHORIZATION_FAILED"


class InvalidTimestamp(KafkaError):
    code, kafka_name = 32, "INVALID_TIMESTAMP"


class UnsupportedSaslMechanism(KafkaError):
    code, kafka_name = 33, "UNSUPPORTED_SASL_MECHANISM"


class IllegalSaslState(KafkaError):
    code, kafka_name = 34, "ILLEGAL_SASL_STATE"


class UnsupportedVersion(KafkaError):
    code, kafka_name = 35, "UNSUPPORTED_VERSION"


class TopicAlreadyExists(KafkaError):
    code, kafka_name = 36, "TOPIC_ALREADY_EXISTS"


class InvalidPartitions(KafkaError):
    code, kafka_name = 37, "INVALID_PARTITIONS"


class InvalidReplicationFactor(KafkaError):
    code, kafka_name = 38, "INVALID_REPLICATION_FACTOR"


class InvalidReplicaAssignment(KafkaError):
    code, kafka_name = 39, "INVALID_REPLICA_ASSIGNMENT"


class InvalidConfig(KafkaError):
    code, kafka_name = 40, "INVALID_CONFIG"


class NotController(RetriableError):
    code, kafka_name = 41, "NOT_CONTROLLER"


class InvalidRequest(KafkaError):
    code, kafka_name = 42, "INVALID_REQUEST"


class UnsupportedForMessageFormat(KafkaError):
    code, kafka_name = 43, "UNSUPPORTED_FOR_MESSAGE_FORMAT"


class PolicyViolation(KafkaError):
    code, kafka_name = 44, "POLICY_VIOLATION"


class OutOfOrderSequenceNumber(KafkaError):
    code, kafka_name = 45, "OUT_OF_ORDER_SEQUENCE_NUMBER"


class DuplicateSequenceNumber(KafkaError):
    code, kafka_name = 46, "DUPLICATE_SEQUENCE_NUMBER"


class InvalidProducerEpoch(KafkaError):
    code, kafka_name = 47, "INVALID_PRODUCER_EPOCH"


class InvalidTxnState(KafkaError):
    code, kafka_name = 48, "INVALID_TXN_STATE"


class InvalidProducerIdMapping(KafkaError):
    code, kafka_name = 49, "INVALID_PRODUCER_ID_MAPPING"


class InvalidTransactionTimeout(KafkaError):
    code, kafka_name = 50, "INVALID_TRANSACTION_TIMEOUT"


class ConcurrentTransactions(RetriableError):
    code, kafka_name = 51, "CONCURRENT_TRANSACTIONS"


class TransactionCoordinatorFenced(KafkaError):
    code, kafka_name = 52, "TRANSACTION_COORDINATOR_FENCED"


class TransactionalIdAuthorizationFailed(KafkaError):
    code, kafka_name = 53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


class SecurityDisabled(KafkaError):
    code, kafka_name = 54, "SECURITY_DISABLED"


class OperationNotAttempted(KafkaError):
    code, kafka_name = 55, "OPERATION_NOT_ATTEMPTED"


class KafkaStorageError(RetriableError):
    code, kafka_name = 56, "KAFKA_STORAGE_ERROR"


class LogDirNotFound(KafkaError):
    code, kafka_name = 57, "LOG_DIR_NOT_FOUND"


class SaslAuthenticationFailed(KafkaError):
    code, kafka_name = 58, "SASL_AUTHENTICATION_FAILED"


class UnknownProducerId(KafkaError):
    code, kafka_name = 59, "UNKNOWN_PRODUCER_ID"


class ReassignmentInProgress(KafkaError):
    code, kafka_name = 60, "REASSIGNMENT_IN_PROGRESS"


class DelegationTokenAuthDisabled(KafkaError):
    code, kafka_name = 61, "DELEGATION_TOKEN_AUTH_DISABLED"


class DelegationTokenNotFound(KafkaError):
    code, kafka_name = 62, "DELEGATION_TOKEN_NOT_FOUND"


class DelegationTokenOwnerMismatch(KafkaError):
    code, kafka_name = 63, "DELEGATION_TOKEN_OWNER_MISMATCH"


class DelegationTokenRequestNotAllowed(KafkaError):
    code, kafka_name = 64, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"


class DelegationTokenAuthorizationFailed(KafkaError):
    code, kafka_name = 65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED"


class DelegationTokenExpired(KafkaError):
    code, kafka_name = 66, "DELEGATION_TOKEN_EXPIRED"


class InvalidPrincipalType(KafkaError):
    code, kafka_name = 67, "INVALID_PRINCIPAL_TYPE"


class NonEmptyGroup(KafkaError):
    code, kafka_name = 68, "NON_EMPTY_GROUP"


class GroupIdNotFound(KafkaError):
    code, kafka_name = 69, "GROUP_ID_NOT_FOUND"


class FetchSessionIdNotFound(RetriableError):
    code, kafka_name = 70, "FETCH_SESSION_ID_NOT_FOUND"


class InvalidFetchSessionEpoch(RetriableError):
    code, kafka_name = 71, "INVALID_FETCH_SESSION_EPOCH"


class ListenerNotFound(RetriableError):
    code, kafka_name = 72, "LISTENER_NOT_FOUND"


class TopicDeletionDisabled(KafkaError):
    code, kafka_name = 73, "TOPIC_DELETION_DISABLED"


class FencedLeaderEpoch(RetriableError):
    code, kafka_name = 74, "FENCED_LEADER_EPOCH"


class UnknownLeaderEpoch(RetriableError):
    code, kafka_name = 75, "UNKNOWN_LEADER_EPOCH"


class UnsupportedCompressionType(KafkaError):
    code, kafka_name = 76, "UNSUPPORTED_COMPRESSION_TYPE"


class StaleBrokerEpoch(KafkaError):
    code, kafka_name = 77, "STALE_BROKER_EPOCH"


class OffsetNotAvailable(RetriableError):
    code, kafka_name = 78, "OFFSET_NOT_AVAILABLE"


class MemberIdRequired(KafkaError):
    code, kafka_name = 79, "MEMBER_ID_REQUIRED"


class PreferredLeaderNotAvailable(RetriableError):
    code, kafka_name = 80, "PREFERRED_LEADER_NOT_AVAILABLE"


class GroupMaxSizeReached(KafkaError):
    code, kafka_name = 81, "GROUP_MAX_SIZE_REACHED"


class FencedInstanceId(KafkaError):
    code, kafka_name = 82, "FENCED_INSTANCE_ID"


class EligibleLeadersNotAvailable(RetriableError):
    code, kafka_name = 83, "ELIGIBLE_LEADERS_NOT_AVAILABLE"


class ElectionNotNeeded(RetriableError):
    code, kafka_name = 84, "ELECTION_NOT_NEEDED"


class NoReassignmentInProgress(KafkaError):
    code, kafka_name = 85, "NO_REASSIGNMENT_IN_PROGRESS"


class GroupSubscribedToTopic(KafkaError):
    code, kafka_name = 86, "GROUP_SUBSCRIBED_TO_TOPIC"


class InvalidRecord(KafkaError):
    code, kafka_name = 87, "INVALID_RECORD"


class UnstableOffsetCommit(RetriableError):
    code, kafka_name = 88, "UNSTABLE_OFFSET_COMMIT"


class ThrottlingQuotaExceeded(RetriableError):
    code, kafka_name = 89, "THROTTLING_QUOTA_EXCEEDED"


class ProducerFenced(KafkaError):
    code, kafka_name = 90, "PRODUCER_FENCED"


class ResourceNotFound(KafkaError):
    code, kafka_name = 91, "RESOURCE_NOT_FOUND"


class DuplicateResource(KafkaError):
    code, kafka_name = 92, "DUPLICATE_RESOURCE"


class UnacceptableCredential(KafkaError):
    code, kafka_name = 93, "UNACCEPTABLE_CREDENTIAL"


class InconsistentVoterSet(KafkaError):
    code, kafka_name = 94, "INCONSISTENT_VOTER_SET"


class InvalidUpdateVersion(KafkaError):
    code, kafka_name = 95, "INVALID_UPDATE_VERSION"


class FeatureUpdateFailed(KafkaError):
    code, kafka_name = 96, "FEATURE_UPDATE_FAILED"


class PrincipalDeserializationFailure(KafkaError):
    code, kafka_name = 97, "PRINCIPAL_DESERIALIZATION_FAILURE"


class SnapshotNotFound(KafkaError):
    code, kafka_name = 98, "SNAPSHOT_NOT_FOUND"


class PositionOutOfRange(KafkaError):
    code, kafka_name = 99, "POSITION_OUT_OF_RANGE"


class UnknownTopicId(RetriableError):
    code, kafka_name = 100, "UNKNOWN_TOPIC_ID"


class DuplicateBrokerRegistration(KafkaError):
    code, kafka_name = 101, "DUPLICATE_BROKER_REGISTRATION"


class BrokerIdNotRegistered(KafkaError):
    code, kafka_name = 102, "BROKER_ID_NOT_REGISTERED"


class InconsistentTopicId(RetriableError):
    code, kafka_name = 103, "INCONSISTENT_TOPIC_ID"


class InconsistentClusterId(KafkaError):
    code, kafka_name = 104, "INCONSISTENT_CLUSTER_ID"


class TransactionalIdNotFound(KafkaError):
    code, kafka_name = 105, "TRANSACTIONAL_ID_NOT_FOUND"


class FetchSessionTopicIdError(RetriableError):
    code, kafka_name = 106, "FETCH_SESSION_TOPIC_ID_ERROR"


class IneligibleReplica(KafkaError):
    code, kafka_name = 107, "INELIGIBLE_REPLICA"


class NewLeaderElected(KafkaError):
    code, kafka_name = 108, "NEW_LEADER_ELECTED"


class OffsetMovedToTieredStorage(KafkaError):
    code, kafka_name = 109, "OFFSET_MOVED_TO_TIERED_STORAGE"


class FencedMemberEpoch(KafkaError):
    code, kafka_name = 110, "FENCED_MEMBER_EPOCH"


class UnreleasedInstanceId(KafkaError):
    code, kafka_name = 111, "UNRELEASED_INSTANCE_ID"


class UnsupportedAssignor(KafkaError):
    code, kafka_name = 112, "UNSUPPORTED_ASSIGNOR"


class StaleMemberEpoch(KafkaError):
    code, kafka_name = 113, "STALE_MEMBER_EPOCH"


class MismatchedEndpointType(KafkaError):
    code, kafka_name = 114, "MISMATCHED_ENDPOINT_TYPE"


class UnsupportedEndpointType(KafkaError):
    code, kafka_name = 115, "UNSUPPORTED_ENDPOINT_TYPE"


class UnknownControllerId(KafkaError):
    code, kafka_name = 116, "UNKNOWN_CONTROLLER_ID"


class UnknownSubscriptionId(KafkaError):
    code, kafka_name = 117, "UNKNOWN_SUBSCRIPTION_ID"


class TelemetryTooLarge(KafkaError):
    code, kafka_name = 118, "TELEMETRY_TOO_LARGE"


class InvalidRegistration(KafkaError):
    code, kafka_name = 119, "INVALID_REGISTRATION"


class TransactionAbortable(KafkaError):
    code, kafka_name = 120, "TRANSACTION_ABORTABLE"


class InvalidRecordState(KafkaError):
    code, kafka_name = 121, "INVALID_RECORD_STATE"


class ShareSessionNotFound(RetriableError):
    code, kafka_name = 122, "SHARE_SESSION_NOT_FOUND"


class InvalidShareSessionEpoch(RetriableError):
    code, kafka_name = 123, "INVALID_SHARE_SESSION_EPOCH"


class FencedStateEpoch(KafkaError):
    code, kafka_name = 124, "FENCED_STATE_EPOCH"


class InvalidVoterKey(KafkaError):
    code, kafka_name = 125, "INVALID_VOTER_KEY"


class DuplicateVoter(KafkaError):
    code, kafka_name = 126, "DUPLICATE_VOTER"


class VoterNotFound(KafkaError):
    code, kafka_name = 127, "VOTER_NOT_FOUND"


class InvalidRegularExpression(KafkaError):
    code, kafka_name = 128, "INVALID_REGULAR_EXPRESSION"


class RebootstrapRequired(KafkaError):
    code, kafka_name = 129, "REBOOTSTRAP_REQUIRED"


class StreamsInvalidTopology(KafkaError):
    code, kafka_name = 130, "STREAMS_INVALID_TOPOLOGY"


class StreamsInvalidTopologyEpoch(KafkaError):
    code, kafka_name = 131, "STREAMS_INVALID_TOPOLOGY_EPOCH"


class StreamsTopologyFenced(KafkaError):
    code, kafka_name = 132, "STREAMS_TOPOLOGY_FENCED"


class ShareSessionLimitReached(RetriableError):
    code, kafka_name = 133, "SHARE_SESSION_LIMIT_REACHED"


def _classes(root: type[KafkaError]) -> dict[int, type[KafkaError]]:
    found: dict[int, type[KafkaError]] = {}
    for cls in root.__subclasses__():
        if cls is not RetriableError:
            found[cls.code] = cls
        found.update(_classes(cls))
    return found


BY_CODE: Final[dict[int, type[KafkaError]]] = _classes(KafkaError)


def error_for(code: int, message: str = "") -> KafkaError:
    """The error that a code on the wire stands for. Unknown codes become UnknownServerError, which says the code."""
    cls = BY_CODE.get(code)
    if cls is None:
        return UnknownServerError(message or f"error code {code} is not in the table of this version")
    return cls(message)


def as_kafka_error(error: BaseException) -> KafkaError:
    """Itself, or what the client is told: KafkaStorageError where the operating system refused something, which may
    pass, and UnknownServerError for a bug of ours."""
    if isinstance(error, KafkaError):
        return error
    text = f"{type(error).__name__}: {error}"
    return KafkaStorageError(text) if isinstance(error, OSError) else UnknownServerError(text)


def error_name(code: int) -> str:
    """Kafka's name of a code, NONE for 0: `error_name(3)` is `UNKNOWN_TOPIC_OR_PARTITION`."""
    if code == NONE:
        return "NONE"
    cls = BY_CODE.get(code)
    return cls.kafka_name if cls else f"ERROR_{code}"


# --- what goes wrong without a broker's answer ------------------------------------------------------------------------


class Attempt(NamedTuple):
    """One try to reach or use a broker."""

    address: str
    stage: str
    """`dns`, `tcp`, `tls`, `version` (the ApiVersions handshake), `sasl`, or `request`."""
    error: str
    """The operating system's or the decoder's words."""
    hint: str
    """What to look at, or empty."""
    elapsed_ms: float = 0.0

    def __str__(self) -> str:
        return f"{self.address}: {self.stage}: {self.error}"


class ClientError(BarnabasError):
    """No usable answer came. `attempts` says what was tried, oldest first."""

    retriable: ClassVar[bool] = False

    def __init__(self, message: str, attempts: tuple[Attempt, ...] = ()) -> None:
        super().__init__(message)
        self.attempts = attempts


class ConnectionLost(ClientError):
    """A connection could not be made or broke; another try may succeed. What was in flight may have happened or not."""

    retriable = True


class BrokerUnreachable(ClientError):
    """No bootstrap address led to a broker."""


class TopicNotFound(UnknownTopicOrPartition):
    """Metadata does not have the topic or partition: asking a leader again would not help, unlike for its base."""

    retriable = False


class OperationTimedOut(ClientError):
    """The deadline passed. `attempts` has the reasons of the tries before it."""


class ClientClosed(ClientError):
    """`close` was called, here or in another thread, or the process forked: this object does nothing any more."""


class CommitFailed(ClientError):
    """The group has moved on without this consumer, and others may have its partitions: what it read since its last
    commit is read again. The next poll joins the group again."""


class KeysMove(UserWarning):
    """A topic with records gets more partitions: records of one key may go to another partition from now on."""


_NAMED_MAX: Final = 20


class ItemsFailed(ClientError):
    """A call about several things (topics, partitions, groups, ...) failed for some of them.

    `failed` has the error of each, `succeeded` the results of the others: what was done stays done. `attempts` are the
    tries that failed, also those that were made up for later.
    """

    def __init__(
        self,
        what: str,
        failed: Mapping[Any, BarnabasError],
        succeeded: Mapping[Any, Any],
        attempts: tuple[Attempt, ...] = (),
    ) -> None:
        count = len(failed) + len(succeeded)
        named = [f"{_item(item)}: {error}" for item, error in list(failed.items())[:_NAMED_MAX]]
        if len(failed) > _NAMED_MAX:
            named.append(f"and {len(failed) - _NAMED_MAX} more")
        super().__init__(f"{what} failed for {len(failed)} of {count}: {'; '.join(named)}", attempts)
        self.failed = dict(failed)
        self.succeeded = dict(succeeded)

    def only(self, *kinds: type[BarnabasError]) -> bool:
        """Whether all that failed did so with one of these: `if not error.only(TopicAlreadyExists): raise`."""
        return all(isinstance(error, kinds) for error in self.failed.values())


def _item(item: Any) -> str:
    """`orders`, `orders-0`, `topic orders`, `broker 1`."""
    return f"broker {item}" if isinstance(item, int) else " ".join(map(str, item)) if type(item) is tuple else str(item)


class BufferExhausted(OperationTimedOut):
    """The producer's buffer stayed full for as long as a call may block."""


class RecordsPurged(ClientError):
    """The application told the producer to give these records up."""


class TransactionFailed(ClientError):
    """Something of the transaction failed: nothing of it will be seen. Abort it; then the next one may begin."""


class TransactionAborted(ClientError):
    """The record was not sent, or not waited for, because its transaction was aborted."""


class FailedRows(NamedTuple):
    """Rows of the call that failed together. `partition` is -1 for rows that were never taken."""

    topic: str
    partition: int
    rows: Sequence[int]
    """Their numbers from 0 on, a range where they follow one another."""
    error: BaseException | None


class RecordsFailed(ClientError):
    """Some or all records of a bulk call failed. `failed` says which rows and why, `sent` where the others stand as
    far as that is known; `delivery` is the call's, for those that may still be under way."""

    def __init__(self, delivery: Any, failed: tuple[FailedRows, ...], sent: tuple[Any, ...]) -> None:
        count = sum(len(part.rows) for part in failed)
        named = "; ".join(map(_named, failed[:3])) + (f"; and {len(failed) - 3} more" if len(failed) > 3 else "")
        super().__init__(f"{count} of {delivery.count} records for {delivery.topic} failed: {named}")
        self.delivery = delivery
        self.failed = failed
        self.sent = sent


def _named(part: FailedRows) -> str:
    first, last = part.rows[0], part.rows[-1]
    rows = f"row {first}" if first == last else f"{len(part.rows)} rows from {first} to {last}"
    return f"{rows}: {part.error}"


class WokenUp(ClientError):
    """`wakeup` was called while, or before, this consumer waited."""


class LogTruncation(BarnabasError):
    """The log was cut below the position: records that were read are gone. `auto.offset.reset` is none, so it is the
    application's to say where to go on."""

    def __init__(self, where: TopicPartition, position: Any, diverging: Any) -> None:
        known = "" if diverging is None else f"; up to offset {diverging.offset} the log is as it was"
        super().__init__(f"{where}: the log was cut below {position}{known}; seek to where to go on")
        self.partition = where
        self.position = position
        self.diverging = diverging


class NoOffsetForPartition(BarnabasError):
    """Nothing is committed, or the offset does not exist, and `auto.offset.reset` is none."""

    def __init__(self, partitions: Collection[TopicPartition], why: str = "no offset is committed") -> None:
        names = ", ".join(sorted(map(str, partitions)))
        super().__init__(f"{names}: {why}, and auto.offset.reset is none; seek, or commit an offset for the group")
        self.partitions = tuple(sorted(partitions))


class RecordDeserializationFailed(BarnabasError):
    """A deserializer raised. The position stays at the record, so that a seek can step over it."""

    def __init__(self, record: Any, part: str, error: Exception) -> None:
        where = f"{record.topic}-{record.partition}, offset {record.offset}"
        super().__init__(f"the {part} of the record at {where} cannot be deserialized: {error!r}; seek to pass it")
        self.record = record
        """As it came, with key and value as bytes."""
