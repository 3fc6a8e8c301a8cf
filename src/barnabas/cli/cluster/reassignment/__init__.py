"""Moves of replicas to other brokers: plans, their execution, progress and throttle."""
