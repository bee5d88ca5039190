"""Opening a log after any stop: interrupted work settled, the unsynced end recovered."""
