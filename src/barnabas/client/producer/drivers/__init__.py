"""The drivers of a producer: what it needs of threads, and of an event loop."""
