"""The index files of a segment, and the searches that use them."""
