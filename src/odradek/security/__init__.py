"""The nouns of security: principals, the operations on resources, access rules. Pure.

This package does not know how a request arrived: it decides by a principal, a host, an operation
and a resource. `odradek.network.authentication` establishes the principal of a connection.
"""
