"""The rebalances of a member."""

from barnabas.client.consumer.group.rebalance_history import KEPT, Rebalance, RebalanceHistory


def test_a_retry_belongs_to_the_rebalance_that_is_under_way() -> None:
    history = RebalanceHistory()
    assert history.under_way() is None
    history.begin(1.0, "first")
    history.set_back("UNKNOWN_MEMBER_ID")
    history.begin(2.0, "again")
    assert history.is_under_way
    assert history.under_way() == Rebalance("first", 1.0, None, -1, ("UNKNOWN_MEMBER_ID",))
    history.end(5.0, 7)
    history.end(6.0, 8)
    assert list(history.past) == [Rebalance("first", 1.0, 5.0, 7, ("UNKNOWN_MEMBER_ID",))]
    assert (history.count, history.under_way()) == (1, None)
    history.begin(9.0, "second")
    assert history.under_way() == Rebalance("second", 9.0, None, -1), "the setbacks were the last one's"


def test_the_last_ones_are_kept_and_all_are_counted() -> None:
    history = RebalanceHistory()
    for number in range(KEPT + 5):
        history.begin(number, f"{number}")
        history.end(number, number)
    assert [rebalance.generation_id for rebalance in history.past] == [*range(5, KEPT + 5)]
    assert history.count == KEPT + 5
