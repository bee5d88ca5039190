"""The wire protocol: bytes to frames, frames to messages and back. Pure."""
