"""Handlers of the APIs for settings."""
