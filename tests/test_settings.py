"""Settings from the environment: an invalid one prevents the start, and the error lists the allowed values."""

import pytest

from embedsink.errors import Misconfigured
from embedsink.settings import Settings, read_settings

NO_ORIGINS = (
    "is not `none` or a list of origins separated by spaces. "
    "Example: https://app.example.com https://intranet.example.com."
)


def test_each_setting_that_is_not_a_number_describes_its_allowed_values() -> None:
    fields = [field for field in Settings.model_fields.values() if field.annotation not in (int, float)]
    assert len(fields) >= 2
    assert all("allowed" in dict(field.json_schema_extra or {}) for field in fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("EVENTS_MAX", "many", '"many" is not an integer that is at least 1.'),
        ("EVENTS_MAX", "0", '"0" is not an integer that is at least 1.'),
        ("EVENTS_MAX", "1.5", '"1.5" is not an integer that is at least 1.'),
        ("DEPTH_MAX", "201", '"201" is not an integer that is at least 4 and at most 200.'),
        ("BODY_TIMEOUT_S", "0", '"0" is not a finite number that is above 0.'),
        ("BODY_TIMEOUT_S", "inf", '"inf" is not a finite number that is above 0.'),
        ("SNAPSHOT_INTERVAL_S", "nan", '"nan" is not a finite number that is above 0.'),
        ("KEYS_RELOAD_S", "2", '"2" is not a finite number that is above 0 and at most 1.'),
        ("SESSION_GAP_MINUTES", "14", '"14" is not an integer that is at least 15 and at most 1,440.'),
        (
            "SERVICE_NAME",
            "Acme!",
            '"Acme!" is not a name of lowercase letters, digits and hyphens, starting with a letter.',
        ),
        ("FRAME_ORIGINS", "", f'"" {NO_ORIGINS}'),
        ("FRAME_ORIGINS", "https://a.example,", f'"https://a.example," {NO_ORIGINS}'),
        ("BODY_BYTES_MAX", "x" * 100, f'"{"x" * 61}…" is not an integer that is at least 1,024.'),
    ],
)
def test_an_invalid_value_is_reported_with_the_allowed_values(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    monkeypatch.setenv(f"EMBEDSINK_{name}", value)
    with pytest.raises(Misconfigured) as error:
        read_settings()
    assert str(error.value) == f"EMBEDSINK_{name}: {message} Change or unset it."


def test_a_body_limit_beyond_the_journals_maximum_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBEDSINK_BODY_BYTES_MAX", "67108864")
    with pytest.raises(
        Misconfigured, match=r"^EMBEDSINK_PENDING_BYTES_MAX: 33,554,432 is too small: .*Raise it to at least [\d,]+\.$"
    ):
        read_settings()
    monkeypatch.setenv("EMBEDSINK_PENDING_BYTES_MAX", "536870912")
    assert read_settings().body_bytes_max == 67_108_864


def test_all_invalid_variables_are_reported_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBEDSINK_DEDUP_DAY", "7")
    monkeypatch.setenv("EMBEDSINK_FLAVOUR_OF_ICE", "lemon")
    monkeypatch.setenv("EMBEDSINK_STORE_THREADS", "none")
    with pytest.raises(Misconfigured) as error:
        read_settings()
    assert str(error.value).splitlines() == [
        "EMBEDSINK_DEDUP_DAY: does not exist. Did you mean EMBEDSINK_DEDUP_DAYS?",
        "EMBEDSINK_FLAVOUR_OF_ICE: does not exist. Unset the variable. docs/configuration.md lists all settings.",
        'EMBEDSINK_STORE_THREADS: "none" is not an integer that is at least 1. Change or unset it.',
    ]


def test_variables_of_the_command_line_are_not_unknown_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBEDSINK_DATA", "data")
    monkeypatch.setenv("EMBEDSINK_KEY", "es_read_…")
    assert read_settings() == Settings()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("12=30,12=40", "deployment 12 has two numbers of days. Delete one of them."),
        (
            "12=6",
            "deployment 12: 6 is less than EMBEDSINK_DEDUP_DAYS (7), so an event that is sent again would not be "
            "recognized. Raise it to at least 7, or set EMBEDSINK_DEDUP_DAYS=6. Browsers resend events for up to six",
        ),
        *(
            (value, f'"{item}" is not deployment=days with 0 to 36,500 days. Write items separated by commas, without')
            for value, item in (
                ("", ""),
                ("12", "12"),
                ("13=9,12:30", "12:30"),
                ("12=30,", ""),
                ("12=30, 13=0", " 13=0"),
                ("12=-1", "12=-1"),
                ("12=a month", "12=a month"),
                ("12=36501", "12=36501"),
                ("12=\u0663\u0660", "12=\\u0663\\u0660"),
            )
        ),
        ("012=30", '"012" is not an integer from -9,007,199,254,740,991 to 9,007,199,254,740,991. Write it in plain'),
    ],
)
def test_an_invalid_retention_by_deployment_says_what_to_write(
    monkeypatch: pytest.MonkeyPatch, value: str, message: str
) -> None:
    monkeypatch.setenv("EMBEDSINK_RETENTION_DAYS_BY_DEPLOYMENT", value)
    with pytest.raises(Misconfigured) as error:
        read_settings()
    assert str(error.value).startswith(f"EMBEDSINK_RETENTION_DAYS_BY_DEPLOYMENT: {message}")


def test_each_deployment_may_have_a_retention_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_settings().deployment_retention_days() == {}
    monkeypatch.setenv("EMBEDSINK_RETENTION_DAYS_BY_DEPLOYMENT", "12=30,-13=0,14=7")
    with pytest.raises(Misconfigured, match="needs EMBEDSINK_DAILY_TOTALS=off"):
        read_settings()
    monkeypatch.setenv("EMBEDSINK_DAILY_TOTALS", "off")
    assert read_settings().deployment_retention_days() == {12: 30, -13: 0, 14: 7}
