"""Handlers of the APIs that read and write records."""
