"""`python -m barnabas` and the command `barnabas`."""

import sys


def main() -> None:
    """Run the command line and end the process with its exit code: 0 done, 1 failed, 2 wrong usage, 130 Ctrl-C."""
    from barnabas.cli.main import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
