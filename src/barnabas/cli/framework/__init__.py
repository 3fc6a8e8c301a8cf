"""Shared parts of the commands: declared options, parsing, output, progress, and the cluster that a command names."""
