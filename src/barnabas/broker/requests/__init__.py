"""From a frame to a handler and from a response to its frame."""
