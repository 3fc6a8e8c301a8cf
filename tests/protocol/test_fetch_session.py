"""The epochs of fetch sessions."""

from barnabas.protocol.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, next_epoch


def test_the_epoch_of_a_full_request_never_comes_again() -> None:
    assert next_epoch(INITIAL_EPOCH) == 1
    assert next_epoch(1) == 2
    assert next_epoch(2**31 - 2) == 2**31 - 1
    assert next_epoch(2**31 - 1) == 1
    assert FINAL_EPOCH not in (INITIAL_EPOCH, next_epoch(2**31 - 1))
