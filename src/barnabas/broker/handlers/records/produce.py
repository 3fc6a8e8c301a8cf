"""Produce v3-v13. Appends in the order of arrival, one batch a partition; answers when what `acks` asks for is true.

acks=0 gets no answer, and an error then closes the connection, as in Kafka. acks=1 answers after the append, acks=all
when every in-sync replica has it. Under durability=fsync both wait for the disk.

The first batch of a transaction in a partition waits for the transaction's coordinator to agree (`produce_queues`).
Compressed batches that take more than a millisecond or two to validate are validated in a thread (`batch_validator`).
"""

from collections.abc import Callable, Sequence
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final

from barnabas.broker.delayed_produce import DelayedProduce, Uncommitted
from barnabas.broker.produce.add_partitions_to_txn_manager import Grants
from barnabas.broker.produce.batch_validator import BatchToValidate, Verdict
from barnabas.broker.produce.produce_queues import ValidatedRequest
from barnabas.broker.requests.request_context import RequestContext
from barnabas.errors import (
    CorruptMessage,
    InvalidProducerIdMapping,
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTopic,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    NotLeaderOrFollower,
    RecordListTooLarge,
    TransactionalIdAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.log.producers.verification_guards import Sender
from barnabas.metadata.image import INTERNAL_TOPICS
from barnabas.network.connection import NO_REPLY, Parts, PendingReply
from barnabas.protocol.produce import (
    FLEXIBLE_FROM,
    PartitionResponse,
    ProduceRequest,
    SinglePartition,
    TopicProduceData,
    encode_produce_response,
    read_produce_request,
    read_single_partition,
)
from barnabas.records.batch import COMPRESSION_MASK, TRANSACTIONAL_FLAG, read_header
from barnabas.records.validation import TooMuchWork, record_errors_of, validate_produce
from barnabas.replication.partition import Partition

if TYPE_CHECKING:
    from barnabas.broker.server import Broker

_SIZE_CORRELATION: Final = Struct(">ii")
_ZSTD_FROM: Final = 7
_FLAGS_POSITION: Final = 22
"""Of a batch's lower byte of attributes."""
_AT_ONCE_S: Final = 0.002
"""What the compressed batches of one request may take on the loop; the rest of them goes to a thread."""
_ADMIN_CLIENT: Final = "__admin_client"
"""Kafka's name for the one client that may write to internal topics."""
_WITHOUT_START: Final = (
    CorruptMessage,
    InvalidTopic,
    KafkaStorageError,
    MessageTooLarge,
    NotLeaderOrFollower,
    RecordListTooLarge,
    TransactionalIdAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)

Topics = list[tuple[TopicProduceData, list[PartitionResponse]]]
Place = tuple[int, int]
"""Of a partition's result: its topic's index, its own."""


def handle_frame(broker: "Broker", frame: memoryview, position: int, context: RequestContext) -> Parts | PendingReply:
    version = context.api_version
    single = read_single_partition(frame, position, version)
    at_once_s = _AT_ONCE_S
    if single is not None:
        try:
            answer = _append_single(broker, single[0], single[1], context)
        except TooMuchWork:
            answer, at_once_s = None, 0
        if answer is not None:
            return answer
    request = read_produce_request(frame, position, version)
    if request.acks not in (-1, 0, 1):
        return _refuse(context, request, InvalidRequiredAcks(f"acks={request.acks}: 0, 1 or -1 (all)"))
    if request.transactional_id is None:
        if _claims_transaction(request):
            return _refuse(context, request, _no_transaction())
        return _validated(broker, context, request, at_once_s, partial(_append_all, broker, context, grants={}))
    batches = _transactional_batches(broker, context, request)
    if not batches:
        return _validated(broker, context, request, at_once_s, partial(_append_all, broker, context, grants={}))
    if len({sender[:2] for sender in batches.values()}) > 1:
        several = InvalidProducerIdMapping("Transactional records contained more than one producer ID")
        return _refuse(context, request, several)

    def enter(validated: ValidatedRequest) -> Parts | PendingReply:
        return broker.produce_queues.enter(context, validated, batches, partial(_append_all, broker, context))

    return _validated(broker, context, request, at_once_s, enter)


def _claims_transaction(request: ProduceRequest) -> bool:
    for topic in request.topics:
        for _, records in topic.partitions:
            if records is not None and len(records) > _FLAGS_POSITION and records[_FLAGS_POSITION] & TRANSACTIONAL_FLAG:
                return True
    return False


def _transactional_batches(
    broker: "Broker", context: RequestContext, request: ProduceRequest
) -> dict[Partition, Sender]:
    """By the partitions that are led here; what is no batch, or for no partition, is refused when it is appended."""
    batches: dict[Partition, Sender] = {}
    for topic in request.topics:
        name, _ = _name_of(broker, topic, context)
        for index, records in topic.partitions:
            try:
                header = read_header(records or b"")
                if header.is_transactional and header.has_producer_id:
                    batches[broker.replica_manager.leader_of(name, index)] = Sender.of(header)
            except KafkaError:
                continue
    return batches


def _validated(
    broker: "Broker",
    context: RequestContext,
    request: ProduceRequest,
    at_once_s: float,
    proceed: Callable[[ValidatedRequest], Parts | PendingReply],
) -> Parts | PendingReply:
    """Proceed with the verdicts on all batches: now, or when a thread has looked at those that take long, and at the
    compressed ones after `at_once_s`."""
    validated = ValidatedRequest(request, [])
    heavy: list[BatchToValidate] = []
    places: list[tuple[list[Verdict | None], int]] = []
    now_ms = broker.clock.wall_ms()
    zstd_allowed = context.api_version >= _ZSTD_FROM
    leader_of = broker.replica_manager.leader_of
    now = broker.loop.time
    until = now() + at_once_s
    for topic in request.topics:
        name, topic_error = _name_of(broker, topic, context)
        verdicts: list[Verdict | None] = []
        validated.verdicts.append(verdicts)
        for index, records in topic.partitions:
            try:
                if topic_error is not None:
                    raise topic_error
                policy = leader_of(name, index).append_policy
                if now() >= until and _is_compressed(records):
                    raise TooMuchWork("the batches before it took long")
                verdicts.append(validate_produce(records, policy, now_ms, zstd_allowed=zstd_allowed, at_once=True))
            except KafkaError as error:
                verdicts.append(error)
            except TooMuchWork:
                heavy.append(BatchToValidate(bytes(records or b""), policy, now_ms, zstd_allowed))
                places.append((verdicts, len(verdicts)))
                verdicts.append(None)
            except Exception as error:
                # One partition's bug must not take the others' acknowledgements with it.
                verdicts.append(broker.failures.report(f"produce to {name}-{index}", error))
    if not heavy:
        return proceed(validated)
    kept = validated.copied()

    def append(found: list[Verdict]) -> Parts | PendingReply:
        for (verdicts, place), verdict in zip(places, found, strict=True):
            verdicts[place] = verdict
        return proceed(kept)

    return broker.batch_validator.validate(context, heavy, append)


def _is_compressed(records: memoryview | None) -> bool:
    return records is not None and len(records) > _FLAGS_POSITION and records[_FLAGS_POSITION] & COMPRESSION_MASK != 0


def _append_all(
    broker: "Broker", context: RequestContext, validated: ValidatedRequest, grants: Grants
) -> Parts | PendingReply:
    request = validated.request
    waiting: list[Uncommitted[Place]] = []
    topics: Topics = []
    leader_of = broker.replica_manager.leader_of
    for topic_index, (topic, verdicts) in enumerate(zip(request.topics, validated.verdicts, strict=True)):
        name, topic_error = _name_of(broker, topic, context)
        results = []
        for (index, _), verdict in zip(topic.partitions, verdicts, strict=True):
            if topic_error is not None:
                results.append(_failed(index, topic_error))
                continue
            try:
                partition = leader_of(name, index)
                grant = grants.get(partition.topic_partition) if grants else None
                if isinstance(grant, KafkaError):
                    results.append(_failed(index, grant))
                    continue
                assert verdict is not None
                if isinstance(verdict, KafkaError):
                    raise verdict
                info = partition.append_as_leader(verdict, request.acks, guard=grant)
            except KafkaError as error:
                results.append(_refused(broker, name, index, error))
                continue
            except Exception as error:
                # One partition's bug must not take the others' acknowledgements with it.
                results.append(_failed(index, broker.failures.report(f"produce to {name}-{index}", error)))
                continue
            end_offset = info.last_offset + 1
            if request.acks != 0 and not partition.is_committed(end_offset) and _must_wait(partition, request.acks):
                waiting.append(Uncommitted(partition, end_offset, (topic_index, len(results))))
            results.append(PartitionResponse(index, 0, info.first_offset, info.log_append_time, info.log_start_offset))
        topics.append((topic, results))
    if request.acks == 0:
        return _unanswered(context, topics)
    if waiting:
        return _parked(broker, context, topics, waiting, request.timeout_ms)
    return _respond(context, topics)


def _append_single(
    broker: "Broker", single: SinglePartition, records: memoryview, context: RequestContext
) -> Parts | PendingReply | None:
    """The short way of what `_append_all` does for any number of partitions; None: the batch is the first of its
    transaction in this partition, or others of its producer wait. Raises TooMuchWork."""
    topic, index = single.topic, single.partition
    name, topic_error = _name_of(broker, topic, context)
    try:
        if topic_error is not None:
            raise topic_error
        partition = broker.replica_manager.leader_of(name, index)
        batch = validate_produce(
            records,
            partition.append_policy,
            broker.clock.wall_ms(),
            zstd_allowed=context.api_version >= _ZSTD_FROM,
            at_once=True,
        )
        if batch.header.attributes & TRANSACTIONAL_FLAG:
            if single.transactional_id is None:
                raise _no_transaction()
            producer_id = batch.header.producer_id
            if producer_id in broker.produce_queues.waiting:
                return None
            ongoing = partition.log.producers.has_ongoing_transaction(producer_id, batch.header.producer_epoch)
            if producer_id >= 0 and not ongoing:
                return None
        info = partition.append_as_leader(batch, single.acks)
    except KafkaError as error:
        return _respond(context, [(topic, [_refused(broker, name, index, error)])])
    except TooMuchWork:
        raise
    except Exception as error:
        failure = broker.failures.report(f"produce to {name}-{index}", error)
        return _respond(context, [(topic, [_failed(index, failure)])])
    end_offset = info.last_offset + 1
    if partition.log.high_watermark < end_offset and _must_wait(partition, single.acks):
        result = PartitionResponse(index, 0, info.first_offset, info.log_append_time, info.log_start_offset)
        waiting = [Uncommitted(partition, end_offset, (0, 0))]
        return _parked(broker, context, [(topic, [result])], waiting, single.timeout_ms)
    return (single.response(context.correlation_id, info.first_offset, info.log_append_time, info.log_start_offset),)


def _must_wait(partition: Partition, acks: int) -> bool:
    return acks == -1 or partition.waits_for_commit


def _name_of(broker: "Broker", topic: TopicProduceData, context: RequestContext) -> tuple[str, KafkaError | None]:
    name = topic.name
    if topic.topic_id is not None:
        found = broker.replica_manager.topic_name(topic.topic_id)
        if found is None:
            return "", UnknownTopicId(f"no topic has the id {topic.topic_id}")
        name = found
    if name in INTERNAL_TOPICS and context.client_id != _ADMIN_CLIENT:
        return name, InvalidTopic(
            f"{name} belongs to the brokers: what others write there would be state after a restart"
        )
    return name, None


def _no_transaction() -> KafkaError:
    """What Kafka says: nobody may write in the name of no transactional id."""
    return TransactionalIdAuthorizationFailed("a batch belongs to a transaction, but the request names none")


def _failed(index: int, error: KafkaError) -> PartitionResponse:
    return PartitionResponse(index, error.code, record_errors=record_errors_of(error), error_message=error.message)


def _refused(broker: "Broker", name: str, index: int, error: KafkaError) -> PartitionResponse:
    """What the log refused by its rules comes with the log's start, as in Kafka; what is no batch at all without."""
    result = _failed(index, error)
    if isinstance(error, _WITHOUT_START) or (isinstance(error, InvalidRecord) and not result.record_errors):
        return result
    partition = broker.replica_manager.get(name, index)
    return result if partition is None else result._replace(log_start_offset=partition.log.log_start_offset)


def _refuse(context: RequestContext, request: ProduceRequest, error: KafkaError) -> Parts:
    topics = [(topic, [_failed(index, error) for index, _ in topic.partitions]) for topic in request.topics]
    return _unanswered(context, topics) if request.acks == 0 else _respond(context, topics)


def _unanswered(context: RequestContext, topics: Topics) -> Parts:
    """A client that asked for no answers learns of an error only by losing its connection."""
    failed = [result for _, results in topics for result in results if result.error_code]
    if failed:
        context.connection.close(f"produce with acks=0 failed: {failed[0].error_message}")
    return NO_REPLY


def _respond(context: RequestContext, topics: Sequence[tuple[TopicProduceData, Sequence[PartitionResponse]]]) -> Parts:
    version = context.api_version
    body = encode_produce_response(topics, version)
    if version >= FLEXIBLE_FROM:
        return (_SIZE_CORRELATION.pack(len(body) + 5, context.correlation_id) + b"\0" + body,)
    return (_SIZE_CORRELATION.pack(len(body) + 4, context.correlation_id) + body,)


def _parked(
    broker: "Broker", context: RequestContext, topics: Topics, waiting: list[Uncommitted[Place]], timeout_ms: int
) -> PendingReply:
    """The answer when every partition's batch is committed, or has failed after all."""
    # The records are views into the frame; kept ones would keep all of it while we wait.
    kept = [(topic._replace(partitions=[]), results) for topic, results in topics]
    reply = context.pending_reply()

    def failed(place: Place, error: KafkaError) -> None:
        results = kept[place[0]][1]
        results[place[1]] = _failed(results[place[1]].partition, error)

    def finished() -> None:
        if not context.connection.closed:
            reply.resolve(_respond(context, kept))

    wait = DelayedProduce(waiting, failed, finished)
    broker.purgatory.park(wait, reply, wait.partitions, max(0, timeout_ms) / 1000)
    return reply
