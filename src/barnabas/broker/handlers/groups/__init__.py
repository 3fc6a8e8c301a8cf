"""Handlers of the APIs for consumer groups."""
