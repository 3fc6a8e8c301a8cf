"""The APIs that only the other brokers of the cluster are served."""
