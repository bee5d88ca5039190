"""Puts the parts of a broker together, serves requests, and takes metadata in."""
