"""The version of this package. A module of its own, so that whoever needs it imports nothing else."""

__version__ = "0.1.0"
