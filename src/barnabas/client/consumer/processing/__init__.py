"""Processes records in a pool of workers (`Consumer.process`), and commits offsets without gaps."""
