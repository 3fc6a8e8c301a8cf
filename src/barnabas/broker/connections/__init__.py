"""The limits on connections, and the broker addresses in responses to clients."""
