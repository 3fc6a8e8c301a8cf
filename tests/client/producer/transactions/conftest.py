"""A transactional producer of either version."""

import pytest

from client.producer.transactions.rig import Transacting


@pytest.fixture(params=[2, 0], ids=["v2", "v0"])
def it(request: pytest.FixtureRequest) -> Transacting:
    it = Transacting(request.param)
    it.init()
    return it
