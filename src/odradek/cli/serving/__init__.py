"""What `odradek serve` does beside running the broker: checks its settings, tells the service."""
