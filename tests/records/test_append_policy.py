"""The bound on what a compressed batch may hold."""

from barnabas.records.append_policy import AppendPolicy


def test_decompression_bound() -> None:
    policy = AppendPolicy()
    assert policy.decompression_bound(100) == 16 * 1024 * 1024
    assert policy.decompression_bound(1_000_000) == 64_000_000
    assert policy.decompression_bound(10_000_000) == 100_000_000
    assert AppendPolicy(max_message_bytes=80_000_000).decompression_bound(1000) == 160_000_000
