"""Where the demo's page is, and which pages may hold its pretend embed."""

PAGE_PATH = "/demo/"


def origins(port: int) -> tuple[str, ...]:
    """The origins by which the page may be opened."""
    return (f"http://127.0.0.1:{port}", f"http://localhost:{port}")
