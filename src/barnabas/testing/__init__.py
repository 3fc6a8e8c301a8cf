"""A real broker inside a test process: `with barnabas.testing.Broker() as broker: ...`.

Main classes: `Broker`, `Faults`; `pytest_plugin` brings the fixtures. It must never be needed by a running broker.
"""

from barnabas.testing.broker import Broker
from barnabas.testing.faults import Fault, Faults

__all__ = ["Broker", "Fault", "Faults"]
