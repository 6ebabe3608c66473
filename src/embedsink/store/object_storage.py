"""Object storage (S3) through DuckDB's extension httpfs: list, read and write whole objects."""

import contextlib
import os
import re
import threading
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb

from embedsink.errors import EmbedsinkError, Misconfigured
from embedsink.store.duckdb_errors import first_line

_PACKAGE = "duckdb_extension_httpfs"
# Objects have at most 32 MiB (archive/archive.py).
_MEMORY_LIMIT = "256MB"
# A request that takes longer is retried once. The loader waits for it.
_TIMEOUT_S = 20
_DENIED = re.compile(r"\b(HTTP|code) (401|403)\b|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken")
_MISSING = re.compile(r"NoSuchBucket|\b(HTTP|code) (301|404)\b")
_FULL = re.compile(r"\b(HTTP|code) 507\b|QuotaExceeded|StorageFull")
_UNREACHABLE = re.compile(r"Could not (connect|resolve)|[Tt]imeout|[Tt]imed out|Connection (refused|reset)")


class ObjectStorageFailed(EmbedsinkError):
    """The object storage does not do this now. The message has the cause and what to do."""


class ObjectStorage:
    """The objects of S3 buckets, with the credentials of the usual `AWS_…` environment variables.

    Args:
        environment: the environment variables; None for those of the process.

    Raises:
        Misconfigured: the extension is missing, or does not fit the version of DuckDB; or a credential is missing.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        secret_sql = _secret_sql(os.environ if environment is None else environment)
        self._lock = threading.Lock()
        self._connection = duckdb.connect(
            ":memory:",
            config={
                "memory_limit": _MEMORY_LIMIT,
                "threads": 1,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
            },
        )
        try:
            self._connection.execute(f"load '{_extension()}'")
            self._connection.execute(f"set http_timeout = {_TIMEOUT_S}")
            self._connection.execute("set http_retries = 1")
            self._connection.execute(secret_sql)
        except duckdb.Error as error:
            self.close()
            raise Misconfigured(f"httpfs: {first_line(error)}. {_INSTALL}") from None

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def glob(self, pattern: str) -> list[str]:
        """Return the URLs that match a pattern. Raise ObjectStorageFailed."""
        return [url for (url,) in self._fetch("select file from glob($1)", [pattern])]

    def read(self, url: str) -> bytes:
        """Return the content of an object. Raise ObjectStorageFailed."""
        [(content,)] = self._fetch("select content from read_blob($1)", [url])
        return bytes(content)

    def write(self, url: str, content: bytes) -> None:
        """Create or replace an object: all or nothing. Raise ObjectStorageFailed."""
        escaped = url.replace("'", "''")  # COPY has no parameter for it.
        self._fetch(f"copy (select $1::blob as content) to '{escaped}' (format blob)", [content])

    def _fetch(self, sql: str, parameters: list[object]) -> list[tuple[Any, ...]]:
        with self._lock, _errors_translated():
            return self._connection.execute(sql, parameters).fetchall()


_INSTALL = "Install embedsink with the extra `archive`: pip install 'embedsink[archive]'."


def _extension() -> Path:
    """Return the path of the extension in its package. DuckDB checks its signature and its version."""
    spec = find_spec(_PACKAGE)
    folders = spec.submodule_search_locations if spec else None
    paths = [path for folder in folders or () for path in Path(folder).glob("extensions/*/httpfs.duckdb_extension")]
    for path in paths:
        if path.parent.name == f"v{duckdb.__version__}":
            return path
    problem = "is for another version of DuckDB" if paths else "is not installed"
    raise Misconfigured(f"{_PACKAGE}: {problem}, and s3:// needs it. {_INSTALL}")


def _secret_sql(environment: Mapping[str, str]) -> str:
    """Return the statement that gives DuckDB the credentials, the region and the endpoint.

    Raises:
        Misconfigured: the credentials are missing.
    """
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        if not environment.get(name):
            raise Misconfigured(f"{name}: is not set, and s3:// needs it. Set it in the environment of embedsink.")
    options = {
        "key_id": environment.get("AWS_ACCESS_KEY_ID"),
        "secret": environment.get("AWS_SECRET_ACCESS_KEY"),
        "session_token": environment.get("AWS_SESSION_TOKEN"),
        "region": environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1",
    }
    endpoint = urlsplit(environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or "")
    if endpoint.netloc:
        options |= {
            "endpoint": endpoint.netloc + endpoint.path.rstrip("/"),
            "url_style": "path",
            "use_ssl": "false" if endpoint.scheme == "http" else "true",
        }
    pairs = [f"{name} '{value.replace(chr(39), chr(39) * 2)}'" for name, value in options.items() if value]
    return f"create secret (type s3, {', '.join(pairs)})"


@contextlib.contextmanager
def _errors_translated() -> Iterator[None]:
    """Replace DuckDB's errors in this block by one sentence each: the cause and what to do."""
    try:
        yield
    except duckdb.Error as error:
        raise ObjectStorageFailed(_sentence(str(error), first_line(error))) from None


def _sentence(text: str, line: str) -> str:
    if _DENIED.search(text):
        return "refuses the credentials. Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the rights of the key."
    if _MISSING.search(text):
        return "does not exist. Create the bucket, or check its name and AWS_REGION."
    if _FULL.search(text):
        return "is full. Free space in it, or raise its quota."
    if _UNREACHABLE.search(text):
        return "can't be reached. Check the network and AWS_ENDPOINT_URL."
    return f"fails ({line})."
