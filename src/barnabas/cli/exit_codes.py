"""The exit codes of every command, in one table; docs/cli.md shows it."""

from typing import Final

__all__ = ["EXIT_CODES", "FAILED", "INTERRUPTED", "NOT_YET", "OK", "TERMINATED", "USAGE"]

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NOT_YET: Final = 75
"""EX_TEMPFAIL of sysexits.h."""
INTERRUPTED: Final = 130
TERMINATED: Final = 143

EXIT_CODES: Final = {
    OK: "Done. A reader of the output that went away (`| head`) is no failure, and nothing to list is none either.",
    FAILED: "The operation failed: the brokers refused it or did not answer in time, what was named does not exist in"
    " the cluster, a file cannot be read or the output not written. Or a check (`doctor`, `cluster doctor`, `brokers"
    " check`, `dump-log`, the demos) found something wrong, or `cluster recover` replicas missing.",
    USAGE: "Wrong usage: the command line, a setting, or a line of the input is not valid. `serve` also ends so when it"
    " cannot start for a reason that only the operator can remove, such as an address or a data directory in use.",
    NOT_YET: "`serve` cannot start for a reason that may pass by itself, such as other brokers or a ZooKeeper that are"
    " not there, or a registry whose disk is full: start it again.",
    INTERRUPTED: "Ctrl-C (SIGINT). Consumers have committed what was printed and left their group.",
    TERMINATED: "SIGTERM; the command ended as it does on Ctrl-C. `serve` shuts down on both and ends with 0,"
    " except in its first moments, before it has begun to start a broker.",
}
"""The meaning of each code."""
