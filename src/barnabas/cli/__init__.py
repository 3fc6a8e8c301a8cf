"""The command line, one module per command group, each imported only when called."""
