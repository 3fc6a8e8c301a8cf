"""EndTxn: which epoch the producer has afterwards."""

from barnabas import errors
from barnabas.coordinator.transaction.transaction_metadata import EPOCH_MAX
from coordinator.transaction_rig import OTHER, TransactionRig


class TestEpochs:
    def test_every_transaction_of_version_2_has_an_epoch_of_its_own(self) -> None:
        rig = TransactionRig()
        producer = rig.producer()
        for epoch in range(5):
            assert producer[1] == epoch
            rig.add(producer)
            producer = rig.end(producer, commit=epoch % 2 == 0)
            rig.settle()
        assert [(m.producer_epoch, m.commit) for m in rig.markers.sent] == [
            (1, True), (2, False), (3, True), (4, False), (5, True),
        ]  # fmt: skip

    def test_older_clients_keep_theirs(self) -> None:
        rig = TransactionRig()
        producer = rig.producer()
        for _ in range(3):
            rig.add(producer, transaction_version=0)
            rig.end(producer, transaction_version=0)
            rig.settle()
        assert [(m.producer_epoch, m.transaction_version) for m in rig.markers.sent] == [(0, 0)] * 3

    def test_the_next_producer_id_is_known_while_the_markers_are_under_way(self) -> None:
        rig = TransactionRig()
        producer = rig.producer()
        rig.put("t", producer_epoch=EPOCH_MAX - 1)
        last = (producer[0], EPOCH_MAX - 1)
        assert rig.add(last) is None
        rig.markers.held = True
        successor = rig.end(last)
        assert successor[0] != producer[0]
        assert successor[1] == 0
        # The client heard of its new id with the answer: whatever it asks next is too early, not wrong.
        assert isinstance(rig.init(expected=successor), errors.ConcurrentTransactions)
        assert isinstance(rig.end(successor, commit=False), errors.ConcurrentTransactions)
        adding = rig.add_later(successor, OTHER)
        rig.markers.release()
        rig.advance(1.0)
        assert adding.value is None or isinstance(adding.value, errors.ConcurrentTransactions)
        assert rig.add(successor, OTHER) is None
        assert rig.state() == "Ongoing"

    def test_the_next_transaction_may_be_given_up_while_the_markers_are_under_way(self) -> None:
        """Nothing of it has arrived: its records wait for the markers, too. Kafka answers PRODUCER_FENCED."""
        rig = TransactionRig()
        producer = rig.producer()
        assert rig.add(producer) is None
        rig.markers.held = True
        following = rig.end(producer)
        assert isinstance(rig.end(following, commit=False), errors.ConcurrentTransactions)
        assert isinstance(rig.end(producer), errors.ConcurrentTransactions), "a repetition"
        rig.markers.release()
        rig.settle()
        assert rig.end(producer) == following
        after = rig.end(following, commit=False)
        assert after == (following[0], following[1] + 1)

    def test_a_new_producer_id_when_they_run_out(self) -> None:
        rig = TransactionRig()
        producer = rig.producer()
        rig.put("t", producer_epoch=EPOCH_MAX - 1)
        last = (producer[0], EPOCH_MAX - 1)
        rig.add(last)
        following = rig.end(last)
        assert following == (producer[0] + 1, 0)
        assert isinstance(rig.end(last), errors.ConcurrentTransactions)
        rig.settle()
        assert rig.markers.sent[0].producer_id == producer[0]
        assert rig.markers.sent[0].producer_epoch == EPOCH_MAX
        assert rig.end(last) == following, "a repetition that comes late"
        rig.restart()
        assert rig.end(last) == following, "and after a restart"
        assert rig.add(following) is None

    def test_no_producer_id_no_decision(self) -> None:
        rig = TransactionRig()
        producer = rig.producer()
        rig.put("t", producer_epoch=EPOCH_MAX - 1)
        last = (producer[0], EPOCH_MAX - 1)
        rig.add(last)
        rig.no_producer_ids = errors.RequestTimedOut("the registry is away")
        assert isinstance(rig.end(last), errors.CoordinatorNotAvailable)
        assert isinstance(rig.init("new"), errors.CoordinatorNotAvailable)
        assert rig.state() == "Ongoing"
        rig.no_producer_ids = None
        assert rig.end(last) == (producer[0] + 1, 0)

    def test_a_repetition_while_the_epochs_are_used_up_is_no_mystery(self) -> None:
        """Kafka answers UNKNOWN_SERVER_ERROR to both."""
        rig = TransactionRig()
        producer_id, _ = rig.producer()
        rig.put("t", producer_epoch=EPOCH_MAX - 1, last_producer_epoch=EPOCH_MAX - 2)
        again = rig.init(expected=(producer_id, EPOCH_MAX - 2))
        assert (again.producer_id, again.producer_epoch) == (producer_id, EPOCH_MAX - 1)
        assert isinstance(rig.init(expected=(producer_id, 5)), errors.ProducerFenced)
