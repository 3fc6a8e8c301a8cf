"""The administrator: requests about topics, groups, settings and transactions, and their answers as values.

Main classes: `AdminCalls` (every call of both fronts, as a promise), `Job` (one call: its deadline and its retries),
and the fronts `front.Admin` and `aio_front.Admin`. The modules `topics`, `configs`, `groups`, `transactions` and
`storage` are pure functions.
"""
