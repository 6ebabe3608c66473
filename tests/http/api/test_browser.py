"""The browser modules: public, compressed, and never stale."""

import gzip
from hashlib import sha256

import pytest

from embedsink.browser.modules import VERSIONS, browser_files, package_files, vendor_files
from tests.support.app import PAGE, Server, problem

NAMES = sorted(browser_files())
MODULE_VERSIONS = sorted(path.name for path in VERSIONS.iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_a_module_is_public_and_has_its_media_type(server: Server, name: str) -> None:
    response = server.get(f"/{name}", headers={"origin": PAGE})
    assert response.status_code == 200
    assert response.content == browser_files()[name].content
    kind = "text/javascript" if name.endswith(".js") else "text/plain"
    assert response.headers["content-type"] == f"{kind}; charset=utf-8"
    assert response.headers["access-control-allow-origin"] == "*"
    assert response.headers["cross-origin-resource-policy"] == "cross-origin"
    assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("name", NAMES)
def test_a_versioned_name_is_immutable_and_a_plain_name_expires_soon(server: Server, name: str) -> None:
    plain = server.get(f"/{name}")
    versioned = server.get(f"/{browser_files()[name].versioned_name}")
    assert versioned.content == plain.content
    assert versioned.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert plain.headers["cache-control"] == "public, max-age=300"


@pytest.mark.parametrize("name", MODULE_VERSIONS)
def test_every_released_version_is_served_unchanged(server: Server, name: str) -> None:
    response = server.get(f"/{name}", headers={"origin": PAGE})
    assert (response.status_code, response.content) == (200, (VERSIONS / name).read_bytes())
    assert sha256(response.content).hexdigest()[:16] == name.split(".")[1]
    assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert response.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("name", ["forwarder.{}.js", "actions.{}.js", "forwarder.{}.d.ts", "actions.{}.d.ts"])
def test_an_unknown_version_is_the_current_file_and_is_not_cached(server: Server, name: str) -> None:
    response = server.get(f"/{name.format('0123456789abcdef')}", headers={"origin": PAGE})
    assert (response.status_code, response.content) == (200, browser_files()[name.replace(".{}", "")].content)
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("vendor", sorted(vendor_files()))
def test_an_adapter_is_public_and_expires_soon(server: Server, vendor: str) -> None:
    response = server.get(f"/vendors/{vendor}.js", headers={"origin": PAGE})
    assert (response.status_code, response.content) == (200, vendor_files()[vendor].content)
    assert response.headers["content-type"] == "text/javascript; charset=utf-8"
    assert response.headers["access-control-allow-origin"] == "*"
    assert response.headers["cache-control"] == "public, max-age=300"


def test_an_unknown_adapter_answers_404_and_lists_the_adapters(server: Server) -> None:
    response = server.get("/vendors/hex.js", headers={"origin": PAGE})
    assert response.status_code == 404
    assert "looker" in response.json()["detail"]
    # Without it, the console of the page would report a missing CORS header instead of the status.
    assert response.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("name", sorted(package_files()))
def test_a_tarball_of_the_npm_package_is_public(server: Server, name: str) -> None:
    response = server.get(f"/packages/{name}")
    assert (response.status_code, response.content) == (200, package_files()[name].content)
    assert response.headers["content-type"] == "application/gzip"
    assert "content-encoding" not in response.headers
    tag = response.headers["etag"]
    assert server.get(f"/packages/{name}", headers={"if-none-match": tag}).status_code == 304


def test_an_unknown_tarball_answers_404_and_lists_the_tarballs(server: Server) -> None:
    response = server.get("/packages/embedsink-browser-9.9.9.tgz")
    assert response.status_code == 404
    assert "/packages/embedsink-browser-0.1.0.tgz" in response.json()["detail"]


def test_a_cached_file_answers_304(server: Server) -> None:
    tag = server.get("/forwarder.js").headers["etag"]
    for known in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*"):
        response = server.get("/forwarder.js", headers={"if-none-match": known})
        assert (response.status_code, response.content) == (304, b"")
        assert response.headers["etag"] == tag
        assert response.headers["access-control-allow-origin"] == "*"
    assert server.get("/forwarder.js", headers={"if-none-match": '"other"'}).status_code == 200
    assert server.get("/actions.js", headers={"if-none-match": tag}).status_code == 200


@pytest.mark.parametrize(
    ("accepted", "is_compressed"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("deflate, gzip, br, zstd", True),
        ("*", False),
        ("gzip;q=0", False),
        ("gzip;q=0.000, br", False),
        ("br", False),
        ("identity", False),
        ("", False),
        ("notgzip", False),
        ("gzip;q=0, *", False),
        ("*, gzip;q=0", False),
        ("*;q=0, gzip;q=1", True),
        ("gzip ; q=0.001", True),
        ("GZIP;Q=0", False),
        ("*;q=0", False),
        ("gzip;q=", True),
        (", ,gzip", True),
    ],
)
def test_a_file_is_compressed_for_clients_that_accept_gzip(server: Server, accepted: str, is_compressed: bool) -> None:
    response = server.get("/forwarder.js", headers={"accept-encoding": accepted})
    assert (response.headers.get("content-encoding") == "gzip") == is_compressed
    assert response.headers["vary"] == "Accept-Encoding"
    # The content is the same, compressed or not.
    assert response.content == browser_files()["forwarder.js"].content


def test_compression_is_deterministic() -> None:
    file = browser_files()["forwarder.js"]
    assert gzip.decompress(file.compressed) == file.content
    assert file.compressed[4:8] == bytes(4)  # The gzip header contains no time (RFC 1952, section 2.3.1).


@pytest.mark.parametrize(
    "name",
    ["other.js", "other.0123456789abcdef.js", "forwarder.0123456789ABCDEF.js", "forwarder.min.js", "x.d.ts", "..js"],
)
def test_an_unknown_name_is_not_found(server: Server, name: str) -> None:
    response = server.get(f"/{name}")
    assert problem(response) == "not_found"
    assert "/forwarder.js, /forwarder.d.ts, /actions.js" in response.json()["detail"]


def test_modules_need_no_key_and_allow_only_get(server: Server) -> None:
    assert problem(server.request("POST", "/forwarder.js")) == "method_not_allowed"
    assert server.request("HEAD", "/forwarder.js").status_code == 200
