"""Runs `make demo`: a broker that survives a kill, a cluster that does, and a pipeline to a table.

`python -m scripts.demo [broker | cluster | pipeline]`; without a word, all.
"""

import sys

from scripts import demo_broker, demo_cluster, demo_pipeline

PARTS = {
    "broker": demo_broker.main,
    "cluster": demo_cluster.main,
    "pipeline": demo_pipeline.main,
}


def main() -> int:
    """Shows the chosen parts; returns 0 if all succeed."""
    words = sys.argv[1:] or list(PARTS)
    unknown = [word for word in words if word not in PARTS]
    if unknown:
        print(f"demo: expected {' or '.join(PARTS)}, came {' '.join(unknown)}", file=sys.stderr)
        return 2
    try:
        return max(PARTS[word]() for word in words)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
