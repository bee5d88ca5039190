"""The bytes of records: batches, their records, their codecs. Pure."""
