"""Commands that show, and seldom change, what administrators ask of a cluster."""
