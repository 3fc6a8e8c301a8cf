"""The health of a cluster: its state as brokers tell it, and the findings about that."""
