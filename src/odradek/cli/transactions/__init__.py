"""The options and the work of `odradek transactions`."""
