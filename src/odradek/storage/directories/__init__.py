"""Data directories: all logs of a broker, their start, stop, checkpoints and removal."""
