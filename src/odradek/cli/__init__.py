"""One module per command: parses arguments, calls a client, prints."""
