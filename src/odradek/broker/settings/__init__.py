"""Settings of a running broker: shown to administrators, changed by them, applied to its parts."""
