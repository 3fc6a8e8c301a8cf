"""Commands about topics and their partitions."""
