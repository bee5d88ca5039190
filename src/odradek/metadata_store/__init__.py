"""The store engine: the three metadata ports over a coordination store."""
