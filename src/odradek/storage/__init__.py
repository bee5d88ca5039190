"""One partition's bytes on disk: logs, segments, indexes, recovery; knows no network."""
