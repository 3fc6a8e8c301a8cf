"""Settings under Kafka's dotted names, each with type, default, range and doc in one place.

Main parts: `definitions` (the machinery), `broker` and `topic` (the settings), `sources` (file, environment, command
line). It must never know what a setting is used for.
"""
