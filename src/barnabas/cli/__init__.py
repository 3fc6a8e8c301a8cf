"""The command line. The module of a command is imported only when the command is called.

Main parts: `main` (dispatch, errors to exit codes), `framework` (commands as typed functions, shared options, output),
and a folder for each subject. Commands speak to brokers over the wire only; `serve` and the demos start one.
"""
