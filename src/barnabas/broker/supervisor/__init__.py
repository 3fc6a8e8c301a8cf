"""The processes of several brokers on one machine: `barnabas serve --brokers 3`.

Main parts: `cluster_plan` (the settings of each broker), `broker_process` (a broker in a process of its own),
`supervisor` (starts, watches and stops the processes), `child_process`, `line_writer`. It must never run an event loop
or a thread in the supervising process: brokers are forked from it.
"""
