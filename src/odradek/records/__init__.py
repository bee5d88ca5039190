"""The bytes of records: batches, their records, their codecs. Pure."""

from odradek.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    Buffer,
    WritableBuffer,
    increment_sequence,
    is_crc_valid,
    iter_headers,
    parse_header,
    patch_max_timestamp,
    patch_offset_and_epoch,
    peek_header,
)
from odradek.records.builder import (
    NewRecord,
    build_batch,
    build_compacted_batch,
    build_empty_batch,
    encode_record,
    rebuild_batch,
)
from odradek.records.compression import (
    DEFAULT_MAX_DECOMPRESSED_SIZE,
    Codec,
    compress,
    decompress,
    parse_codec,
)
from odradek.records.control import (
    ControlType,
    EndTransactionMarker,
    build_end_transaction_marker,
    parse_control_type,
    parse_end_transaction_marker,
)
from odradek.records.record import Headers, Record, read_records, read_region
from odradek.records.walk import NULL_KEY, TIMESTAMP_OUT_OF_RANGE, walk_records

__all__ = [
    "DEFAULT_MAX_DECOMPRESSED_SIZE",
    "HEADER_SIZE",
    "LOG_OVERHEAD",
    "NULL_KEY",
    "TIMESTAMP_OUT_OF_RANGE",
    "BatchHeader",
    "Buffer",
    "Codec",
    "ControlType",
    "EndTransactionMarker",
    "Headers",
    "NewRecord",
    "Record",
    "WritableBuffer",
    "build_batch",
    "build_compacted_batch",
    "build_empty_batch",
    "build_end_transaction_marker",
    "compress",
    "decompress",
    "encode_record",
    "increment_sequence",
    "is_crc_valid",
    "iter_headers",
    "parse_codec",
    "parse_control_type",
    "parse_end_transaction_marker",
    "parse_header",
    "patch_max_timestamp",
    "patch_offset_and_epoch",
    "peek_header",
    "read_records",
    "read_region",
    "rebuild_batch",
    "walk_records",
]
