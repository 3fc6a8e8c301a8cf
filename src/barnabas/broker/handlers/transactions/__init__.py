"""Handlers of the APIs for transactions and their producers."""
