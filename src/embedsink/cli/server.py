"""`embedsink serve` and `embedsink demo`."""

from pathlib import Path
from typing import Annotated

import typer

from embedsink.cli.options import DATA, Data, examples, wrong_use

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
        Path | None, typer.Option(metavar="FILE", help="The TLS certificate, PEM.", exists=True, dir_okay=False)
    ] = None,
    private_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its private key, PEM.", exists=True, dir_okay=False)
    ] = None,
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="A proxy before this server speaks HTTPS and says so.")
    ] = False,
) -> None:
    """Receive events and answer reports until SIGTERM or Ctrl-C. Logs are JSON lines on stderr.

    Beyond this machine it needs a certificate or --behind-proxy: keys must not travel unencrypted.
    """
    if (certificate is None) != (private_key is None):
        raise typer.BadParameter("--certificate and --private-key belong together. Give both or neither.")
    from embedsink.data_folder import DataFolder
    from embedsink.http.server import Listening, serve
    from embedsink.json_logging import log_as_json
    from embedsink.settings import read_settings

    folder, settings = DataFolder(data), read_settings()
    listening = Listening(host, port, certificate, private_key, behind_proxy)
    with wrong_use():
        listening.check()
    log_as_json()
    raise typer.Exit(serve(folder, settings, listening))


def demo(
    port: Annotated[
        int | None, typer.Option(help="The port to listen on; a free one when not told.", min=1, max=65_535)
    ] = None,
) -> None:
    """Show it at work: a page to use, realistic traffic and the reports on it, in a temporary folder."""
    from embedsink.demo import run

    raise typer.Exit(run.run(port))
