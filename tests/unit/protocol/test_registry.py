"""From API keys to message classes."""

import subprocess
import sys

import pytest

from odradek.protocol.api_keys import API_SUPPORT, ApiKey
from odradek.protocol.registry import request_type, response_type


@pytest.mark.parametrize("key", list(API_SUPPORT), ids=lambda key: key.name)
def test_every_api_has_its_messages(key: ApiKey) -> None:
    base = "".join(word.title() for word in key.name.split("_"))
    assert request_type(key).__name__ == base + "Request"
    assert response_type(key).__name__ == base + "Response"


def test_messages_are_imported_when_first_asked_for() -> None:
    """Fifty modules of declarations must not be paid for by `odradek --help`."""
    source = (
        "import sys\n"
        "import odradek.protocol.envelope, odradek.protocol.headers\n"
        "from odradek.protocol.api_keys import ApiKey\n"
        "from odradek.protocol.registry import request_type\n"
        "loaded = [name for name in sys.modules if '.messages.' in name]\n"
        "assert not loaded, loaded\n"
        "request_type(ApiKey.HEARTBEAT)\n"
        "loaded = [name for name in sys.modules if '.messages.' in name]\n"
        "assert loaded == ['odradek.protocol.messages.heartbeat'], loaded\n"
    )
    subprocess.run([sys.executable, "-c", source], check=True, timeout=60)
