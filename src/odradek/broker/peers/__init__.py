"""Requests of a broker to other brokers: the connections, and the requests that use them."""
