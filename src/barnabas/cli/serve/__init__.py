"""`barnabas serve`."""
