"""The nouns of security: principals, the operations on resources, access rules. Pure.

This package does not know how a request arrived: it decides by a principal, a host, an operation
and a resource. `odradek.network.authentication` establishes the principal of a connection.
"""

from odradek.security.acls import AccessRules, AclBinding
from odradek.security.authorizer import AllowEverything, Authorizer
from odradek.security.operations import Operation, PatternType, Permission, ResourceType
from odradek.security.principal import ANONYMOUS, Principal

__all__ = [
    "ANONYMOUS",
    "AccessRules",
    "AclBinding",
    "AllowEverything",
    "Authorizer",
    "Operation",
    "PatternType",
    "Permission",
    "Principal",
    "ResourceType",
]
