"""Handlers of the APIs for the cluster and its brokers."""
