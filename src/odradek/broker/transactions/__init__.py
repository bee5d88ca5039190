"""The leaders' part in transactions: markers, and verification before the first append."""
