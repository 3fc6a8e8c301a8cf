"""The limits on connections, and the addresses that clients are told."""
