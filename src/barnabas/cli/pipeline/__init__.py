"""`barnabas pipeline` and `barnabas sql`: options and output; the work is done by `barnabas.pipeline`."""
