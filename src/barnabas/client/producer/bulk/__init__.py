"""Sends many records in one call (`send_many`, `send_table`), all of which are checked before the first is sent."""
