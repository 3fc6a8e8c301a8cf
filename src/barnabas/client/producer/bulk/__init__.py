"""`send_many` and `send_table`: many records in one call, checked as a whole before the first is sent."""
