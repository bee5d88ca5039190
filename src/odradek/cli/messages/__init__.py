"""The messages that commands read and write: their text, their choice, their copies."""
