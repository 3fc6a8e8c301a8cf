"""What the commands share: declared options, parsing, output, progress, and the cluster that a command talks to."""
