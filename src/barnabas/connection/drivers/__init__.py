"""The drivers of a network client: sockets, clocks, and threads or an event loop.

Main classes: `SyncDriver` (the calling threads drive), `AioDriver` (the running loop drives). Drivers know no API of
Kafka and no producer or consumer, only the network client.
"""

from barnabas.records.compiled.source_lines import show_source

show_source()  # before the first call of a client can fail in compiled code
