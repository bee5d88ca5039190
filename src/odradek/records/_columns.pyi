from odradek.records.columns_pure import ColumnSink as ColumnSink
