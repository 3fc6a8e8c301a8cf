"""Fetching records: fetch sessions, Fetch requests and answers, decoding, positions.

Main classes: `Fetcher` (chooses the partitions and brokers of requests), `FetchSessionHandler` (KIP-227), `FetchBuffer`
(responses that the application has not read to their end), `CompletedFetch` (the records of one partition in one
response).
"""
