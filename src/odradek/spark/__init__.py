"""The data pipeline on Spark: a data source, a pipeline file, and what runs it.

The only package that imports pyspark. Importing it brings in none of Spark, pandas or pyarrow.
"""
