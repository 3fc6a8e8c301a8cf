"""The command line, one module per command group, each imported only when it is called.

Main parts: `main` (dispatch, errors to exit codes), `app` (commands as typed functions), `serve`, `output`, and a
module for each command. It must never speak to a broker but over the wire; `serve` and `demo` alone start one.
"""
