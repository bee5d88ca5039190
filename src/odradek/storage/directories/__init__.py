"""Data directories: all logs of a broker, their start and stop, checkpoints and removal."""
