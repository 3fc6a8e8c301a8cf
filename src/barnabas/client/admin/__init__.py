"""The admin client: operations on topics, groups, settings and transactions, whose results are values.

Main classes: `KafkaAdminClient` (the operations of both fronts, as coroutines), `AdminApiDriver` (the requests and
retries of one operation), and the fronts `front.Admin` and `aio_front.Admin`. Only the fronts know sockets, threads and
event loops.
"""
