"""The server's TLS certificate: checked at the start, and loaded again when its files change."""

import asyncio
import logging
import ssl
from functools import partial
from pathlib import Path

from embedsink.errors import Misconfigured

log = logging.getLogger(__name__)

CHECK_INTERVAL_S = 5.0


def load_certificate(certificate: Path, private_key: Path) -> ssl.SSLContext:
    """Return a context for TLS connections with a certificate and its private key.

    Raises:
        Misconfigured: the files can't be read or don't match, or the key is encrypted.
    """

    def refuse_password() -> str:
        # A server that restarts automatically can't ask for a password.
        raise Misconfigured(f"--private-key {private_key}: is encrypted. Decrypt it: `openssl pkey -in … -out …`.")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # OpenSSL asks for a password only if the private key is encrypted.
        context.load_cert_chain(certificate, private_key, password=refuse_password)
    except OSError as error:  # Includes SSLError.
        is_unreadable = error.errno and not isinstance(error, ssl.SSLError)
        cause = error.strerror if is_unreadable else "not a matching pair in PEM"
        raise Misconfigured(
            f"--certificate {certificate} --private-key {private_key}: {cause}. "
            "Give a certificate and its private key, each in PEM."
        ) from None
    return context


async def watch_certificate(context: ssl.SSLContext, certificate: Path, private_key: Path) -> None:
    """Load the certificate again whenever its files have changed, until this task is cancelled.

    New connections of the context then use it; connections that exist keep the previous one. While the new files are
    invalid, for example because only one of them has been replaced, the previous certificate stays in use.
    """
    loaded_stamp = _stamp(certificate, private_key)
    logged_stamp = loaded_stamp
    while True:
        await asyncio.sleep(CHECK_INTERVAL_S)
        stamp = _stamp(certificate, private_key)
        if stamp == loaded_stamp:
            continue
        try:
            new_context = load_certificate(certificate, private_key)
        except Misconfigured as error:
            if stamp != logged_stamp:
                log.error("certificate_invalid", extra={"detail": f"{error} Until then, the previous one is used."})
            logged_stamp = stamp
        else:
            # Loading into the same context would keep the previous certificate if it has another type of key.
            context.sni_callback = partial(_use_context, new_context)
            loaded_stamp = stamp
            log.info("certificate_loaded", extra={"path": str(certificate)})


def _use_context(context: ssl.SSLContext, connection: ssl.SSLObject, *_: object) -> None:
    """Use the certificate of another context for a connection. OpenSSL calls this at the start of a handshake."""
    connection.context = context


def _stamp(*paths: Path) -> tuple[tuple[int, int, int] | None, ...]:
    """Return the mtime in ns, the size and the inode of each file; None for a file that can't be examined."""
    stamps: list[tuple[int, int, int] | None] = []
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            stamps.append(None)
        else:
            stamps.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(stamps)
