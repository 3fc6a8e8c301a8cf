"""The producer: appends records to batches, sends batches in requests, and completes their handles by the responses.

Main classes: `RecordAppender` (appends one record to the open batch of its partition; compiled), `RecordAccumulator`
(the waiting batches), `Sender` (requests, retries, order), `transactions.TransactionManager`, `KafkaProducer` (all of
these on a network client), and the fronts `front.Producer` and `aio_front.Producer`.
"""
