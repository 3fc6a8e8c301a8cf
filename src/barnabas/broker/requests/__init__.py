"""Passes frames to handlers, and turns responses into frames."""
