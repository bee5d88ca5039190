"""Opens the file system of a path or a URI, for files beside Spark's own.

Spark uses Hadoop, this module uses Arrow, and both have to open the same place: `s3a://` of Hadoop
is `s3://` for Arrow, and in a `file:` URI Hadoop decodes nothing. Endpoint and credentials of a
store are read from the environment, as Arrow's documentation describes.
"""

import os
import re
from typing import Final

import pyarrow as pa
import pyarrow.fs as fs

from odradek.spark.pipeline.engine.problems import PipelineError
from odradek.spark.pipeline.graph.locations import is_uri

__all__ = ["FileSystemError", "failure_of", "open_folder"]

_FILE_URI: Final = re.compile(r"file:(?://(?=/))?(/(?!/).*)", re.IGNORECASE)
_S3: Final = re.compile(r"s3[an]:", re.IGNORECASE)

_OBJECT_STORE: Final = (
    "region, endpoint and credentials come from AWS_DEFAULT_REGION, AWS_ENDPOINT_URL,"
    " AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or from ~/.aws"
)
_HDFS: Final = (
    "it is read through Hadoop's own library: set JAVA_HOME, HADOOP_HOME, and CLASSPATH to the"
    " output of `hadoop classpath --glob`"
)
_AZURE: Final = "log in with `az login`, or set AZURE_CLIENT_ID, AZURE_TENANT_ID and the secret"
_ADVICE: Final = {
    "": "see that the folder's disk is there and may be written",
    "file": "see that the folder's disk is there and may be written",
    "s3": _OBJECT_STORE,
    "s3a": _OBJECT_STORE,
    "s3n": _OBJECT_STORE,
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS to a file with credentials",
    "abfs": _AZURE,
    "abfss": _AZURE,
    "hdfs": _HDFS,
    "viewfs": _HDFS,
}


class FileSystemError(PipelineError):
    """A file system cannot be opened, read or written; the message has advice."""


def open_folder(path: str, what: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path, and the folder in it.

    Args:
        path: A path on this machine, or a URI.
        what: The name of the folder in messages: `the checkpoint`.

    Raises:
        FileSystemError: It cannot be opened.
    """
    if not is_uri(path):
        return fs.LocalFileSystem(), os.path.abspath(path)
    local = _FILE_URI.fullmatch(path)
    if local is not None:
        return fs.LocalFileSystem(), os.path.normpath(local[1])
    try:
        files, folder = fs.FileSystem.from_uri(_S3.sub("s3:", path, count=1))
    except (OSError, ValueError, pa.ArrowException) as error:
        raise failure_of(path, what, error) from error
    return files, str(folder)


def failure_of(path: str, what: str, error: Exception) -> FileSystemError:
    """The error to raise for an error of a file system, with advice."""
    scheme = path.partition(":")[0].lower() if is_uri(path) else ""
    told = " ".join(str(error).split())
    advice = _ADVICE.get(scheme, f"name it by one of {', '.join(sorted(filter(None, _ADVICE)))}")
    return FileSystemError(f"{what} {path} cannot be reached: {told}; {advice}")
