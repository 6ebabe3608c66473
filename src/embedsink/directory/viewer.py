"""The viewer of a user of the directory. `sql/macros/1_viewer_of.sql` has the same rule."""

from typing import Any

_ENTERPRISE = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"


def viewer_of(user: dict[str, Any], attribute: str) -> str | None:
    """Return the value by which a user is found among the viewers of events; None if the user has none.

    Args:
        user: the SCIM resource.
        attribute: the attribute (EMBEDSINK_VIEWER_ATTRIBUTE). Of several emails, the primary one comes first.
    """
    if attribute == "emails":
        emails = user.get("emails") or []
        first = next((email for email in emails if email.get("primary")), emails[0] if emails else {})
        value = first.get("value")
    elif attribute == "employeeNumber":
        value = (user.get(_ENTERPRISE) or {}).get("employeeNumber")
    else:
        value = user.get(attribute)
    return None if value is None else str(value)
