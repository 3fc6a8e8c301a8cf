"""Connects the coordinators to the partitions of their internal topics."""
