"""A real broker inside a test process: `with barnabas.testing.Broker() as broker: ...`.

Main classes: `Broker`, with its `Faults` of requests and its `FaultyDisk`; `pytest_plugin` brings the fixtures. It must
never be needed by a running broker.

Names are imported when they are asked for: pytest loads the plugin in every test run, also in those without a broker.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.testing.broker import Broker, BrokerDied
    from barnabas.testing.faults import Fault, Faults

__all__ = ["Broker", "BrokerDied", "Fault", "Faults"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = import_module(f"barnabas.testing.{'broker' if name.startswith('Broker') else 'faults'}")
    return getattr(module, name)
