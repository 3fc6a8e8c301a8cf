"""Checks and adoption of data directories before the broker opens its logs."""
