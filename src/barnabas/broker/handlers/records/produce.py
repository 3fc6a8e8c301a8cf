"""Produce v3-v13: appends in the order of arrival, one batch a partition, and responds as `acks` asks.

acks=0 gets no response, and an error then closes the connection, as in Kafka. acks=1 responds after the append,
acks=all when every in-sync replica has the batch. Under durability=fsync both wait for the disk.

The first batch of a transaction in a partition is verified with the transaction coordinator (`produce_queues`).
Compressed batches that take more than a millisecond or two to validate are validated in a thread (`batch_validator`).
"""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from struct import Struct
from typing import Final

from barnabas.broker.delayed_produce import DelayedProduce, Uncommitted
from barnabas.broker.produce.add_partitions_to_txn_manager import VerificationResults
from barnabas.broker.produce.batch_validator import BatchToValidate, ValidationResult
from barnabas.broker.produce.produce_queues import ValidatedRequest
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
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
    encode_with_leaders,
    read_produce_request,
    read_single_partition,
)
from barnabas.records.batch import COMPRESSION_MASK, TRANSACTIONAL_FLAG, read_header
from barnabas.records.validation import TooMuchWork, record_errors_of, validate_produce
from barnabas.replication.partition import Partition

_SIZE_CORRELATION: Final = Struct(">ii")
_LEADERS_FROM: Final = 10
_ZSTD_FROM: Final = 7
_ATTRIBUTES_AT: Final = 22
"""The position of a batch's lower byte of attributes."""
_AT_ONCE_S: Final = 0.002
"""The time that the compressed batches of one request may take on the event loop. The others go to a thread."""
_ADMIN_CLIENT: Final = "__admin_client"
"""The client id that Kafka lets write to internal topics."""
_WITHOUT_LOG_START: Final = (
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

TopicResults = list[tuple[TopicProduceData, list[PartitionResponse]]]
ResultIndex = tuple[int, int]
"""The index of a topic, and the index of a partition's result among its results."""


def handle_frame(
    broker: BrokerServices, frame: memoryview, position: int, context: RequestContext
) -> Parts | PendingReply:
    version = context.api_version
    single = read_single_partition(frame, position, version)
    at_once_s = _AT_ONCE_S
    if single is not None:
        try:
            response = _append_single(broker, single[0], single[1], context)
        except TooMuchWork:
            response, at_once_s = None, 0.0
        if response is not None:
            return response
    request = read_produce_request(frame, position, version)
    if request.acks not in (-1, 0, 1):
        return _refuse(broker, context, request, InvalidRequiredAcks(f"acks={request.acks}: 0, 1 or -1 (all)"))
    if request.transactional_id is None:
        if _claims_transaction(request):
            return _refuse(broker, context, request, _no_transaction())
        return _validate(broker, context, request, at_once_s, partial(_append_all, broker, context, verified={}))
    batches = _transactional_batches(broker, context, request)
    if not batches:
        return _validate(broker, context, request, at_once_s, partial(_append_all, broker, context, verified={}))
    if len({sender[:2] for sender in batches.values()}) > 1:
        several = InvalidProducerIdMapping("Transactional records contained more than one producer ID")
        return _refuse(broker, context, request, several)
    return _validate(broker, context, request, at_once_s, partial(_append_verified, broker, context, batches))


def _claims_transaction(request: ProduceRequest) -> bool:
    for topic in request.topics:
        for _, records in topic.partitions:
            if records is not None and len(records) > _ATTRIBUTES_AT and records[_ATTRIBUTES_AT] & TRANSACTIONAL_FLAG:
                return True
    return False


def _transactional_batches(
    broker: BrokerServices, context: RequestContext, request: ProduceRequest
) -> dict[Partition, Sender]:
    """Returns the transactional batches by the partition that this broker leads. Others are refused by the append."""
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


def _validate(
    broker: BrokerServices,
    context: RequestContext,
    request: ProduceRequest,
    at_once_s: float,
    append: Callable[[ValidatedRequest], Parts | PendingReply],
) -> Parts | PendingReply:
    """Validates all batches, then calls `append` with the results.

    A thread validates the batches that take long, and the compressed ones after `at_once_s`.
    """
    validated = ValidatedRequest(request, [])
    heavy: list[BatchToValidate] = []
    late: list[tuple[list[ValidationResult | None], int, str, int]] = []
    now_ms = broker.clock.wall_ms()
    zstd_allowed = context.api_version >= _ZSTD_FROM
    leader_of = broker.replica_manager.leader_of
    now = broker.loop.time
    until = now() + at_once_s
    for topic in request.topics:
        name, topic_error = _name_of(broker, topic, context)
        results: list[ValidationResult | None] = []
        validated.results.append(results)
        for index, records in topic.partitions:
            try:
                if topic_error is not None:
                    raise topic_error
                policy = leader_of(name, index).append_policy
                if now() >= until and _is_compressed(records):
                    raise TooMuchWork("the batches before it took long")
                results.append(validate_produce(records, policy, now_ms, zstd_allowed=zstd_allowed, at_once=True))
            except KafkaError as error:
                _note_refused(broker, name, index, error, records)
                results.append(error)
            except TooMuchWork:
                heavy.append(BatchToValidate(bytes(records or b""), policy, now_ms, zstd_allowed))
                late.append((results, len(results), name, index))
                results.append(None)
            except MemoryError:  # of the check, which changes nothing
                lack = broker.failures.report_no_memory(f"produce to {name}-{index}")
                _note_refused(broker, name, index, lack, records)
                results.append(lack)
            except Exception as error:
                # One partition's bug must not take the others' acknowledgements with it.
                results.append(broker.failures.report(f"produce to {name}-{index}", error))
    if not heavy:
        return append(validated)
    kept = validated.copied()

    def append_validated(late_results: list[ValidationResult]) -> Parts | PendingReply:
        for (results, place, name, index), batch, result in zip(late, heavy, late_results, strict=True):
            results[place] = result
            if isinstance(result, KafkaError):
                _note_refused(broker, name, index, result, batch.records)
        return append(kept)

    return broker.batch_validator.validate(context, heavy, append_validated)


def _is_compressed(records: memoryview | None) -> bool:
    return records is not None and len(records) > _ATTRIBUTES_AT and records[_ATTRIBUTES_AT] & COMPRESSION_MASK != 0


def _append_verified(
    broker: BrokerServices, context: RequestContext, batches: dict[Partition, Sender], validated: ValidatedRequest
) -> Parts | PendingReply:
    return broker.produce_queues.append_verified(context, validated, batches, partial(_append_all, broker, context))


def _append_all(
    broker: BrokerServices, context: RequestContext, validated: ValidatedRequest, verified: VerificationResults
) -> Parts | PendingReply:
    request = validated.request
    waiting: list[Uncommitted[ResultIndex]] = []
    topics: TopicResults = []
    replica_of = broker.replica_manager.replica_of  # the replica itself notes what it refuses because it does not lead
    for topic_index, (topic, validations) in enumerate(zip(request.topics, validated.results, strict=True)):
        name, topic_error = _name_of(broker, topic, context)
        results = []
        for (index, _), validation in zip(topic.partitions, validations, strict=True):
            if topic_error is not None:
                results.append(_failed(index, topic_error))
                continue
            try:
                partition = replica_of(name, index)
                guard = verified.get(partition.topic_partition) if verified else None
                if isinstance(guard, KafkaError):
                    results.append(_failed(index, guard))
                    continue
                assert validation is not None
                if isinstance(validation, KafkaError):
                    raise validation
                info = partition.append_as_leader(validation, request.acks, guard=guard)
            except KafkaError as error:
                results.append(_refused(broker, name, index, error))
                continue
            except Exception as error:
                # One partition's bug must not take the others' acknowledgements with it.
                results.append(_failed(index, broker.failures.report(f"produce to {name}-{index}", error)))
                continue
            last_offset = info.last_offset
            if request.acks != 0 and not partition.is_committed(last_offset) and _must_wait(partition, request.acks):
                waiting.append(Uncommitted(partition, last_offset, (topic_index, len(results))))
            results.append(PartitionResponse(index, 0, info.first_offset, info.log_append_time, info.log_start_offset))
        topics.append((topic, results))
    if request.acks == 0:
        return _no_response(context, topics)
    if waiting:
        return _delayed(broker, context, topics, waiting, request.acks, request.timeout_ms)
    return _respond(broker, context, topics)


def _append_single(
    broker: BrokerServices, single: SinglePartition, records: memoryview, context: RequestContext
) -> Parts | PendingReply | None:
    """Does the same as `_append_all`, faster, for a request with one partition. Raises TooMuchWork.

    Returns None if the transaction has to be verified first, or if older requests of the producer are queued.
    """
    topic, index = single.topic, single.partition
    name, topic_error = _name_of(broker, topic, context)
    try:
        if topic_error is not None:
            raise topic_error
        partition = broker.replica_manager.leader_of(name, index)
        try:
            batch = validate_produce(
                records,
                partition.append_policy,
                broker.clock.wall_ms(),
                zstd_allowed=context.api_version >= _ZSTD_FROM,
                at_once=True,
            )
        except MemoryError:  # nothing has changed yet
            raise broker.failures.report_no_memory(f"produce to {name}-{index}") from None
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
        _note_refused(broker, name, index, error, records)
        return _respond(broker, context, [(topic, [_refused(broker, name, index, error)])])
    except TooMuchWork:
        raise
    except Exception as error:
        failure = broker.failures.report(f"produce to {name}-{index}", error)
        return _respond(broker, context, [(topic, [_failed(index, failure)])])
    if partition.log.high_watermark <= info.last_offset and _must_wait(partition, single.acks):
        result = PartitionResponse(index, 0, info.first_offset, info.log_append_time, info.log_start_offset)
        waiting = [Uncommitted(partition, info.last_offset, (0, 0))]
        return _delayed(broker, context, [(topic, [result])], waiting, single.acks, single.timeout_ms)
    return (single.response(context.correlation_id, info.first_offset, info.log_append_time, info.log_start_offset),)


def _note_refused(
    broker: BrokerServices, name: str, index: int, error: KafkaError, records: bytes | memoryview | None
) -> None:
    """Has a replica note a batch that was not validated for a passing reason: it does not lead, or there is no memory.
    It may lead, and have memory, when the next one comes."""
    if isinstance(error, (NotLeaderOrFollower, KafkaStorageError)):
        partition = broker.replica_manager.get(name, index)
        if partition is not None:
            with contextlib.suppress(KafkaError):
                partition.note_refused(read_header(records or b""))


def _must_wait(partition: Partition, acks: int) -> bool:
    return acks == -1 or partition.waits_for_commit


def _name_of(broker: BrokerServices, topic: TopicProduceData, context: RequestContext) -> tuple[str, KafkaError | None]:
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
    """Returns the error that Kafka gives to transactional batches in a request without a transactional id."""
    return TransactionalIdAuthorizationFailed("a batch belongs to a transaction, but the request names none")


def _failed(index: int, error: KafkaError) -> PartitionResponse:
    return PartitionResponse(index, error.code, record_errors=record_errors_of(error), error_message=error.message)


def _refused(broker: BrokerServices, name: str, index: int, error: KafkaError) -> PartitionResponse:
    """Returns the result of a refused batch: like Kafka with the log start offset, unless the batch is malformed."""
    result = _failed(index, error)
    if isinstance(error, _WITHOUT_LOG_START) or (isinstance(error, InvalidRecord) and not result.record_errors):
        return result
    partition = broker.replica_manager.get(name, index)
    return result if partition is None else result._replace(log_start_offset=partition.log.log_start_offset)


def _refuse(broker: BrokerServices, context: RequestContext, request: ProduceRequest, error: KafkaError) -> Parts:
    topics = [(topic, [_failed(index, error) for index, _ in topic.partitions]) for topic in request.topics]
    return _no_response(context, topics) if request.acks == 0 else _respond(broker, context, topics)


def _no_response(context: RequestContext, topics: TopicResults) -> Parts:
    """Closes the connection if a partition failed: a client with acks=0 learns of errors in no other way."""
    failed = [result for _, results in topics for result in results if result.error_code]
    if failed:
        context.connection.close(f"produce with acks=0 failed: {failed[0].error_message}")
    return NO_REPLY


def _respond(
    broker: BrokerServices,
    context: RequestContext,
    topics: Sequence[tuple[TopicProduceData, Sequence[PartitionResponse]]],
) -> Parts:
    version = context.api_version
    if version >= _LEADERS_FROM and any(
        result.error_code == NotLeaderOrFollower.code for _, results in topics for result in results
    ):
        body = _with_leaders(broker, context, topics)
    else:
        body = encode_produce_response(topics, version)
    if version >= FLEXIBLE_FROM:
        return (_SIZE_CORRELATION.pack(len(body) + 5, context.correlation_id) + b"\0" + body,)
    return (_SIZE_CORRELATION.pack(len(body) + 4, context.correlation_id) + body,)


def _with_leaders(
    broker: BrokerServices,
    context: RequestContext,
    topics: Sequence[tuple[TopicProduceData, Sequence[PartitionResponse]]],
) -> bytes:
    """Returns a response that names the brokers which lead now, so that the client need not ask (KIP-951)."""
    leaders: set[int] = set()
    named = []
    for topic, results in topics:
        name = topic.name if topic.topic_id is None else broker.replica_manager.topic_name(topic.topic_id) or ""
        filled = []
        for result in results:
            partition = broker.image.partition(name, result.partition)
            if result.error_code == NotLeaderOrFollower.code and partition is not None:
                leaders.add(partition.leader)
                result = result._replace(leader_id=partition.leader, leader_epoch=partition.leader_epoch)
            filled.append(result)
        named.append((topic, filled))
    brokers = [each for each in broker.advertised_brokers(context.connection) if each[0] in leaders]
    return encode_with_leaders(named, context.api_version, brokers)


def _delayed(
    broker: BrokerServices,
    context: RequestContext,
    topics: TopicResults,
    waiting: list[Uncommitted[ResultIndex]],
    acks: int,
    timeout_ms: int,
) -> PendingReply:
    """Delays the response until every batch is committed or has failed."""
    # The records are views into the frame, and would keep all of it in memory.
    kept = [(TopicProduceData(topic.name, topic.topic_id, []), results) for topic, results in topics]
    reply = context.pending_reply()

    def failed(index: ResultIndex, error: KafkaError) -> None:
        results = kept[index[0]][1]
        results[index[1]] = _failed(results[index[1]].partition, error)

    def finished() -> None:
        if not context.connection.closed:
            reply.resolve(_respond(broker, context, kept))

    wait = DelayedProduce(waiting, failed, finished, acks)
    broker.purgatory.delay(wait, reply, wait.partitions, max(0, timeout_ms) / 1000)
    return reply
