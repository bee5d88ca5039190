"""One module per API: from a decoded request to its answer."""
