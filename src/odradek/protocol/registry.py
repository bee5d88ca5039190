"""The message classes of each API key, imported when first used.

Fifty modules of declarations take longer to import than a command takes to run, so each of them is
imported only when it is needed.
"""

from functools import cache
from importlib import import_module

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.schema import Message

__all__ = ["request_type", "response_type"]


@cache
def request_type(api_key: ApiKey) -> type[Message]:
    """The class of an API's requests; the key must be in `API_SUPPORT`."""
    return _message_type(api_key, "Request")


@cache
def response_type(api_key: ApiKey) -> type[Message]:
    """The class of an API's responses; the key must be in `API_SUPPORT`."""
    return _message_type(api_key, "Response")


def _message_type(api_key: ApiKey, kind: str) -> type[Message]:
    module = import_module(f"odradek.protocol.messages.{api_key.name.lower()}")
    message_type: type[Message] = getattr(module, api_key.name.title().replace("_", "") + kind)
    assert issubclass(message_type, Message)
    return message_type
