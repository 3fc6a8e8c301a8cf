"""Real brokers inside a test process: `with barnabas.testing.Broker() as broker: ...`, or a `Cluster` of several.

Main classes: `Broker`, with its `Faults` of requests, its `FaultyDisk` and its `SkewedClock`; `Cluster`;
`pytest_plugin` brings the fixtures. It must never be needed by a running broker.

Names are imported when they are asked for: pytest loads the plugin in every test run, also in those without a broker.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.testing.broker import Broker, BrokerDied
    from barnabas.testing.cluster.cluster import Cluster
    from barnabas.testing.faults import Fault, Faults

__all__ = ["Broker", "BrokerDied", "Cluster", "Fault", "Faults"]

_MODULES = {
    "Broker": "broker",
    "BrokerDied": "broker",
    "Cluster": "cluster.cluster",
    "Fault": "faults",
    "Faults": "faults",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"barnabas.testing.{_MODULES[name]}"), name)
