"""The file `identity.toml`: its fields, and a clear error for each mistake."""

from pathlib import Path

import pytest

from embedsink.auth.identity import Issuer, Login, read_identity
from embedsink.auth.keys import KeyKind
from embedsink.errors import Misconfigured
from tests.docs.blocks import blocks
from tests.support.login_provider import login_toml
from tests.support.paths import ROOT

ISSUER = "https://login.example.com/"
SERVER = "https://events.example.com"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[[issuers]\n", "is not TOML"),
        ("\x00", "is not TOML"),
        ("issuer = 1\n", "issuer: is not a field. The fields are issuers, login."),
        ("issuers = 1\n", "issuers: 1 is not a list of tables, [[issuers]]."),
        ('[[issuers]]\naudience = "a"\n', "issuers[0].issuer: is missing."),
        (f'[[issuers]]\nissuer = "{ISSUER}"\n', "issuers[0].audience: is missing."),
        (f'[[issuers]]\nissuer = "{ISSUER}"\naudience = ""\n', 'issuers[0].audience: "" is not a text.'),
        (
            f'[[issuers]]\nissuer = "{ISSUER}"\naudience = "a"\njwks_uri = "x"\n',
            "issuers[0].jwks_uri: is not a field. The fields are issuer, algorithms, deployments_claim, tenants_claim,",
        ),
        *(
            (f'[[issuers]]\nissuer = "{url}"\naudience = "a"\n', "is not an https:// URL")
            for url in (
                "http://login.example.com",
                "login.example.com",
                "https://",
                "ftp://127.0.0.1",
                "https://a?b=c",
                "https://a:99999",
                "https://a:b@c",
                "https://zürich.example",
            )
        ),
        *(
            (f'[[issuers]]\nissuer = "{ISSUER}"\naudience = "a"\nalgorithms = {value}\n', "is not a list of RS256")
            for value in ('["HS256"]', '["none"]', "[]", '"RS256"')
        ),
        (
            f'[[issuers]]\nissuer = "{ISSUER}"\naudience = "a"\norigins = ["*"]\n',
            'issuers[0].origins[0]: "*" is not a list of origins',
        ),
        (f'[[issuers]]\nissuer = "{ISSUER}"\naudience = "a"\n' * 2, "is given twice. Delete one of the two."),
        ("login = 1\n", "login: 1 is not a table, [login]."),
        (login_toml(ISSUER, SERVER, readers=[], admins=[]), "login: permits no person to log in. Add groups"),
        (login_toml(ISSUER, SERVER, scopes=["email"]), 'login.scopes: lacks "openid"'),
        (login_toml(ISSUER, SERVER, scopes=["openid", "a b"]), "login.scopes[1]: "),
        (login_toml(ISSUER, SERVER, readers=["*"]), 'login.readers[0]: "*" is not a list of groups or roles'),
        (login_toml(ISSUER, SERVER, readers=[" "]), 'login.readers[0]: " " is not a list of groups'),
        (login_toml(ISSUER, SERVER, client_id="a "), 'login.client_id: "a " is not a text.'),
        (
            f'[[issuers]]\nissuer = "{ISSUER}"\naudience = "embedsink-test"\ntoken_type = "JWT"\n'
            + login_toml(ISSUER, SERVER),
            "has the client_id of [login] as its audience",
        ),
        (
            login_toml(ISSUER, SERVER, tenants_claim="groups", deployments_claim="groups"),
            "tenants_claim and deployments_claim are the same claim",
        ),
        (
            login_toml(f"{ISSUER}/.well-known/openid-configuration", SERVER),
            f'/.well-known/openid-configuration" is not an issuer. Did you mean {ISSUER}?',
        ),
        (login_toml(ISSUER, SERVER, client_secret="s"), "login.client_secret: is not a field. The fields are issuer,"),
        (login_toml("http://login.example.com", SERVER), "login.issuer: "),
        *(
            (login_toml(ISSUER, url), "is not the origin of this server, such as https://events.example.com.")
            for url in (
                "https://events.example.com/path",
                "http://events.example.com",
                "events.example.com",
                "https://*",
            )
        ),
    ],
)
def test_an_invalid_file_is_a_clear_error(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "identity.toml"
    path.write_text(content)
    with pytest.raises(Misconfigured) as error:
        read_identity(path)
    assert str(error.value).startswith("identity.toml: ")
    assert message in str(error.value)


def test_the_documented_files_are_valid(tmp_path: Path) -> None:
    first, second = (block for block in blocks("toml") if "privacy" not in block.page)
    (tmp_path / "identity.toml").write_text(f"{first.text}\n{second.text}")
    identity = read_identity(tmp_path / "identity.toml")
    [issuer] = identity.issuers
    assert (issuer.issuer, issuer.deployments_claim) == (ISSUER, "deployments")
    assert identity.login is not None
    assert identity.login.server_url == SERVER


@pytest.mark.parametrize(("page", "model"), [("identity.md", Issuer), ("login.md", Login)])
def test_every_field_of_the_file_is_documented(page: str, model: type[Issuer] | type[Login]) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert [name for name in model.model_fields if f"| `{name}` |" not in text] == []


@pytest.mark.parametrize(
    ("roles", "kinds"),
    [
        (["analysts"], {KeyKind.READ}),
        (["operators", "staff"], {KeyKind.ADMIN}),
        (["operators", "analysts"], {KeyKind.ADMIN, KeyKind.READ}),
        (["Analysts", "analyst", "*", None, 7, ["analysts"]], set()),
        ([], set()),
    ],
    ids=["reader", "admin", "both", "others", "none"],
)
def test_groups_are_permissions(tmp_path: Path, roles: list[object], kinds: set[KeyKind]) -> None:
    (tmp_path / "identity.toml").write_text(login_toml(ISSUER, SERVER))
    login = read_identity(tmp_path / "identity.toml").login
    assert login is not None
    assert login.kinds(roles) == kinds


@pytest.mark.parametrize(
    ("roles", "shows_names"),
    [(["analysts"], False), (["analysts", "hr"], True), (["operators"], True), (["HR", None, ["hr"]], False)],
    ids=["reader", "with names", "admin", "others"],
)
def test_groups_show_names(tmp_path: Path, roles: list[object], shows_names: bool) -> None:
    (tmp_path / "identity.toml").write_text(login_toml(ISSUER, SERVER, names=["hr"]))
    login = read_identity(tmp_path / "identity.toml").login
    assert login is not None
    assert login.shows_names(roles) == shows_names


def test_a_missing_file_has_no_issuers_and_an_unreadable_one_is_an_error(tmp_path: Path) -> None:
    assert read_identity(tmp_path / "identity.toml").issuers == []
    with pytest.raises(Misconfigured, match="Is a directory"):
        read_identity(tmp_path)
