"""Fetching records: fetch sessions, Fetch requests and answers, decoding, positions.

Main classes: `Fetcher` (decides what is fetched from whom), `FetchSession` (KIP-227), `FetchBuffer` (answers that the
application has not read to their end), `CompletedFetch` (the records of one partition in one answer).
"""
