"""The broker: builds its parts, serves requests, and applies metadata."""
