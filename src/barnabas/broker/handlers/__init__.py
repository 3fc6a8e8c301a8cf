"""One module per API: the folder is the protocol."""
