"""Levels of loggers, set and shown as settings of a broker."""

import logging

import pytest

from barnabas.broker.server import Broker
from barnabas.errors import InvalidConfig, InvalidRequest
from broker.handlers.configs.configs_rig import APPEND, DELETE, LOGGER, SET, TOPIC, Operations, change, value_of
from broker.handlers.configs.configs_rig import broker as broker


def test_levels_of_loggers(broker: Broker) -> None:
    logger = logging.getLogger("barnabas.test.levels")
    key = logger.name
    try:
        assert change(broker, (LOGGER, "1", [(key, SET, "TRACE")]), (TOPIC, "a", [])) == [(0, None), (0, None)]
        assert logger.isEnabledFor(5)
        assert value_of(broker, LOGGER, "1", key) == "TRACE"
        assert change(broker, (LOGGER, "1", [(key, DELETE, None)]), validate_only=True) == [(0, None)]
        assert logger.level == 5
        assert change(broker, (LOGGER, "1", [(key, DELETE, None)])) == [(0, None)]
        assert logger.level == logging.NOTSET
        logger.setLevel(25)
        assert value_of(broker, LOGGER, "1", key) == "INFO"
        logger.setLevel(1)
        assert value_of(broker, LOGGER, "1", key) == "TRACE"
    finally:
        logger.setLevel(logging.NOTSET)


@pytest.mark.parametrize(
    ("resource", "operation", "code"),
    [
        ("1", ("nosuch.logger", SET, "INFO"), InvalidConfig.code),
        ("1", ("root", SET, "LOUD"), InvalidConfig.code),
        ("1", ("root", DELETE, None), InvalidRequest.code),
        ("1", ("root", APPEND, "INFO"), InvalidRequest.code),
        ("1", ("root", 9, "INFO"), InvalidRequest.code),
        ("2", ("root", SET, "INFO"), InvalidRequest.code),
        ("x", ("root", SET, "INFO"), InvalidRequest.code),
        ("1", ("root", SET, None), InvalidRequest.code),
    ],
)
def test_refused_levels(broker: Broker, resource: str, operation: tuple[str, int, str | None], code: int) -> None:
    before = logging.getLogger().level
    known = (logging.getLogger("barnabas.broker").name, SET, "DEBUG")
    operations: Operations = [known, operation]
    assert change(broker, (LOGGER, resource, operations))[0][0] == code
    assert logging.getLogger().level == before
    assert logging.getLogger("barnabas.broker").level != logging.DEBUG
