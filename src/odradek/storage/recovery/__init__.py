"""Opens a log after any stop: completes interrupted work, recovers the unsynced end."""
