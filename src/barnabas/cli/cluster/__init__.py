"""Commands about the cluster, its brokers and settings, and about connecting to it."""
