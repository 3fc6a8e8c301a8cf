"""`python -m barnabas` and the command `barnabas`."""

import sys


def main() -> None:
    """Run the command line and end the process with its exit code, one of `barnabas.cli.exit_codes`."""
    try:
        from barnabas.cli.main import run

        code: int | str = run(sys.argv[1:])
    except KeyboardInterrupt:  # before or after the command itself
        code = 130
    except MemoryError:  # for the modules of the command line
        code = "barnabas: memory has run out"
    sys.exit(code)


if __name__ == "__main__":
    main()
