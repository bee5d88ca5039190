"""Where the cluster is, and with which settings commands connect to it."""
