"""UnregisterBroker: of brokers that are not there, not known, and live."""

from barnabas.errors import BrokerIdNotRegistered, InvalidRequest
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest
from broker.admin_rig import ask
from broker.handlers.lone_controller import LoneController
from broker.handlers.lone_controller import lone_controller as lone_controller


def test_a_broker_that_never_came_is_unregistered(lone_controller: LoneController) -> None:
    assert set(lone_controller.image.brokers) == {1, 2}
    answer = ask(lone_controller, UnregisterBrokerRequest(broker_id=2))
    assert (answer.error_code, answer.error_message) == (0, None)
    assert set(lone_controller.image.brokers) == {1}


def test_others_are_refused(lone_controller: LoneController) -> None:
    answer = ask(lone_controller, UnregisterBrokerRequest(broker_id=7))
    assert answer.error_code == BrokerIdNotRegistered.code
    assert answer.error_message == "Broker ID 7 is not currently registered"
    assert ask(lone_controller, UnregisterBrokerRequest(broker_id=1)).error_code == InvalidRequest.code
    assert set(lone_controller.image.brokers) == {1, 2}
