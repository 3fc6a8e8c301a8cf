"""The producer: records into batches, batches into requests, answers into results.

Main classes: `RecordAppender` (appends one record to the open batch of its partition; compiled), `RecordAccumulator`
(the batches that wait), `Sender` (requests, retries, order), `transactions.TransactionManager`, `KafkaProducer` (all of
it together on a network client), and the fronts `front.Producer` and `aio_front.Producer`.
"""
