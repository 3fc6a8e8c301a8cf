"""Handlers of the APIs for topics and their metadata."""
