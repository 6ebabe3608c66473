"""`embedsink serve` and `embedsink demo`."""

import logging
from pathlib import Path
from typing import Annotated

import typer

from embedsink.cli.options import DATA, Data, UsageError, examples, usage_errors

SERVE_EXAMPLES = examples(
    "embedsink serve --data data",
    "embedsink serve --host 0.0.0.0 --certificate cert.pem --private-key key.pem",
    "embedsink serve --host 0.0.0.0 --behind-proxy",
)
DEMO_EXAMPLES = examples("embedsink demo", "embedsink demo --port 9000")


def serve(
    data: Data = DATA,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on.", min=0, max=65_535)] = 8321,
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The TLS certificate (PEM).", exists=True, dir_okay=False)
    ] = None,
    private_key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The private key of the certificate (PEM).", exists=True, dir_okay=False),
    ] = None,
    behind_proxy: Annotated[
        bool,
        typer.Option(
            "--behind-proxy",
            help="Trust X-Forwarded-Proto and X-Forwarded-For from a proxy that terminates HTTPS.",
        ),
    ] = False,
) -> None:
    """Receive events and serve reports until SIGTERM or Ctrl-C. Logs are JSON lines on stderr.

    An address that other machines can reach requires a certificate or --behind-proxy, so that keys are encrypted.
    """
    if (certificate is None) != (private_key is None):
        raise UsageError("--certificate: needs --private-key, and vice versa. Pass both or neither.")
    from embedsink.data_folder import DataFolder
    from embedsink.http.server import ListenOptions
    from embedsink.http.server import serve as run_server
    from embedsink.json_logging import log_as_json
    from embedsink.settings import read_settings

    settings = read_settings()
    listen_options = ListenOptions(host, port, certificate, private_key, behind_proxy)
    with usage_errors():
        listen_options.check_encryption()
    log_as_json(logging.INFO)
    exit_code = run_server(DataFolder(data), settings, listen_options)
    raise typer.Exit(exit_code)


def demo(
    port: Annotated[
        int | None, typer.Option(help="The port to listen on. Default: a free port.", min=1, max=65_535)
    ] = None,
) -> None:
    """Run a demonstration in a temporary folder: a page to try, generated traffic, and its reports."""
    from embedsink.demo.run import run as run_demo

    exit_code = run_demo(port)
    raise typer.Exit(exit_code)
