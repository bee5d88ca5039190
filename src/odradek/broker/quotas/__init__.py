"""Client quotas: entities and their bounds, the use of each client, and its throttle time."""
