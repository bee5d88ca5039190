"""Avro: schemas, their registry, and frames of decoded records."""
