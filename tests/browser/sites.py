"""Websites on separate ports, which are separate origins: host pages, and the simulated embeds inside them."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# An embed that emits the requested events, and counts them.
EMBED = """<!doctype html><title>embed</title><script>
  let count = 0;
  const envelope = (name, payload, surface = "dashboard") => ({
    source: "svc-embed", direction: "event", type: `svc:event:${name}`, payload, timestamp: Date.now(), surface });
  const emit = (name, payload, surface) => { count++; parent.postMessage(envelope(name, payload, surface), "*"); };
  const view = (path) => emit("view", { surface: "dashboard", path });
  const ready = (deploymentId, embedTenant) =>
    emit("ready", { embedTenant, deploymentId, mode: "signed", surface: "dashboard" });
  const actions = [];
  addEventListener("message", ({ data, origin }) => actions.push({ data, origin }));
</script>"""

Page = tuple[dict[str, str], str]


class Site:
    """A site with HTML texts by path. It answers on every name of this machine, and each name is another origin."""

    def __init__(self) -> None:
        self.pages: dict[str, Page] = {"/embed": ({}, EMBED)}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self.pages))
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def add(self, path: str, html: str, **headers: str) -> str:
        """Add a page. Return its URL."""
        self.pages[path] = ({name.replace("_", "-"): value for name, value in headers.items()}, html)
        return self.url + path

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


def _handler(pages: dict[str, Page]) -> Callable[..., BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: a failing test shows its own details."""

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            headers, html = pages.get(path, ({}, ""))
            content = html.encode()
            self.send_response_only(200 if path in pages else 404)
            for name, value in {"Content-Type": "text/html; charset=utf-8", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return Handler
