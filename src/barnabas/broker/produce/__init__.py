"""Produce requests that cannot be appended at once."""
