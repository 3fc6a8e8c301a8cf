"""Three brokers on one machine, ours beside Apache Kafka's: speed, cost and what clients feel of a failover."""
