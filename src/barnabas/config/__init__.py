"""Settings under Kafka's dotted names, each with type, default, range and doc in one place.

Main parts: `definitions` (the machinery), `broker_settings` and `topic` (the tables), `broker.BrokerConfig` (one
broker's snapshot), `log_config.LogConfig` (one topic's), `sources` (file, environment, command line), `docs`. It must
never know what a setting is used for.
"""
