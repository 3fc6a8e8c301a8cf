"""Administration of a cluster without socket and clock: requests, their answers as values, and the calls made of them.

Main classes: `AdminCalls` (every call of both fronts, as a promise), `Job` (one call: its deadline, its retries). The
modules `topics`, `configs`, `groups`, `transactions`, `storage` are pure: the command line's client uses them too.
"""
