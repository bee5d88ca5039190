"""The command line: one module per command, which parses arguments, calls a client and prints."""
