"""The cluster image, its deltas, the request-side view, and the ports of the engines. Pure."""
