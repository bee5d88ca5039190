"""Client quotas: what each client used, how long it has to keep still, and who gets which."""
