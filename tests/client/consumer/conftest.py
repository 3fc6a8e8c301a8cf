from typing import Any

import pytest

from barnabas.testing import Broker


@pytest.fixture
def settings(broker: Broker, name: str) -> dict[str, Any]:
    """Settings of a consumer in a group of this test alone."""
    return {
        "bootstrap_servers": broker.bootstrap_servers,
        "auto_offset_reset": "earliest",
        "group_id": f"{name}-group",
        "heartbeat_interval_ms": 300,
    }
