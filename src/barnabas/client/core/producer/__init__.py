"""The producer without sockets: records into batches, batches into requests, answers into results.

Main classes: `Intake` (the way of one record into the open batch; compiled), `Accumulator` (batches that wait),
`Sender` (requests, retries, order), `Transactions` (who we are, and what our transaction does), `ProducerCore` (all of
it together on an engine).
"""
