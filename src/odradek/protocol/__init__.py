"""The wire protocol: messages, their versions, and their encoding. Pure."""
