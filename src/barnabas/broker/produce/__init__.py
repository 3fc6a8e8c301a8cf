"""Produce requests that cannot be appended at once: long validation, transactions to verify."""
