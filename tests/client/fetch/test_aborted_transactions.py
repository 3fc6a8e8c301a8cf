"""Aborted transactions of several producers, in the order of the batches."""

from barnabas.client.fetch.aborted_transactions import AbortedTransactions


def test_a_producer_may_go_on_after_it_aborted() -> None:
    aborted = AbortedTransactions([(9, 0), (9, 20)])
    assert aborted.drops(9, 1, transactional=True)
    assert not aborted.drops(8, 2, transactional=True)
    assert not aborted.drops(9, 3, transactional=False)
    aborted.end(9)
    assert not aborted.drops(9, 10, transactional=True)
    assert aborted.drops(9, 25, transactional=True)
