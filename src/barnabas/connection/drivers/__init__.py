"""What moves a network client: sockets, clocks, and threads or an event loop.

Main classes: `SyncDriver` (whoever calls drives), `AioDriver` (the running loop drives). They know no API of Kafka and
no producer or consumer: only the network client's orders and what became of them.
"""

from barnabas.records.source_lines import show_source

show_source()  # before the first call of a client can fail in compiled code
