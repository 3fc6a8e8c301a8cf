"""One module per API: request and response, each the union of all its versions. Generated."""
