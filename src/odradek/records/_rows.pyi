from odradek.records.rows_pure import Rows as Rows
from odradek.records.rows_pure import group_rows as group_rows

def murmur2(data: bytes) -> int: ...
