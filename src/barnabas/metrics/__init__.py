"""Counters and gauges. It must never know what is counted."""
