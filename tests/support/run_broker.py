"""`odradek` with other version ranges in its ApiVersions answer.

Called as ``run_broker API=RANGE... COMMAND...``, it shows what clients do with a broker that
offers less: ``PRODUCE=3-12 FETCH=4-12 serve …``.
"""

import dataclasses
import sys

from odradek.cli.main import main
from odradek.protocol.api_keys import API_SUPPORT, ApiKey
from odradek.protocol.versions import VersionRange


def _advertise(name: str, versions: str) -> None:
    key = ApiKey[name]
    advertised = VersionRange.parse(versions)
    API_SUPPORT[key] = dataclasses.replace(API_SUPPORT[key], advertised=advertised)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    while "=" in arguments[0]:
        _advertise(*arguments.pop(0).split("=", 1))
    sys.exit(main(arguments))
