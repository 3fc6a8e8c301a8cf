"""The process around the broker: signals, limits, logging."""
