"""`Consumer.process`: records go through a pool of workers, and offsets are committed without gaps."""
