"""``python -m tests.chaos.workload ROLE CLIENT SETTINGS``: see the package."""

import json
import logging
import sys
from collections.abc import Callable
from types import ModuleType

from tests.chaos.workload.recording import Recorder, Settings


def main() -> None:
    """Runs one client until SIGTERM."""
    role, client, settings = sys.argv[1:]
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    recorder = Recorder(Settings(**json.loads(settings)))
    recorder.stop_on_signals()
    # Only the client that is asked for is loaded.
    if role in ("pipeline", "feeder"):
        from tests.chaos.workload import pipelines

        pipelines.run(role, client, recorder)
        return
    if client == "librdkafka":
        from tests.chaos.workload import librdkafka

        module: ModuleType = librdkafka
    else:
        from tests.chaos.workload import ours

        module = ours
    run: Callable[[Recorder], None] = getattr(module, role)
    run(recorder)


if __name__ == "__main__":
    main()
