"""Data directories, their checkpoint files and their disk space."""
