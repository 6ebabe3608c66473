"""All resources of the server. Each module has its handlers, `ROUTES`, and `operations`, which describes them.

To add a resource, add its module to a tag here.
"""

from starlette.routing import BaseRoute

from embedsink.http.api import (
    audit,
    browser,
    dashboards,
    dbt_syncs,
    deployments,
    erasures,
    events,
    exports,
    health,
    inspection,
    live,
    openapi,
    problems,
    quarantine,
    reports,
    scim,
)
from embedsink.http.openapi.builder import OpenApi, Tag
from embedsink.http.pages import assets, audit_page, docs, login, provider_login, vega_bundle
from embedsink.http.pages import dashboards as dashboard_pages
from embedsink.settings import Settings

TAGS = (
    Tag("Sending", "Send events from pages and pipelines.", (events,)),
    Tag("Reading", "Read reports and events, in the scope of the key.", (reports, exports, live, inspection)),
    # Its page comes before the dashboards, because the path of a dashboard matches its path too.
    Tag("Audit", "Who did what: logins, keys, settings, exports and replays.", (audit_page, audit)),
    Tag(
        "Dashboards",
        "The dashboard pages and the data that they show. To log in, use a read key or the identity provider.",
        (dashboard_pages, dashboards, login, provider_login),
    ),
    Tag("Quarantine", "Stored rejections with their reasons.", (quarantine,)),
    Tag("Erasures", "Requests to erase people, and their certificates.", (erasures,)),
    Tag("Deployments", "Deployments, and the results of their dbt syncs.", (deployments, dbt_syncs)),
    Tag("Users", "The users of the directory, provisioned by an identity provider (SCIM 2.0).", (scim.USERS,)),
    Tag("Groups", "The groups of the directory (SCIM 2.0).", (scim.GROUPS,)),
    Tag("Directory", "Searches, bulk requests and the description of the directory (SCIM 2.0).", (scim.DIRECTORY,)),
    Tag("Server", "Health, metrics and documentation.", (health, openapi, docs, assets, vega_bundle, problems)),
    Tag("Browser", "Modules for pages of any origin.", (browser,)),
)


def all_routes() -> list[BaseRoute]:
    """Return the routes of all resources."""
    routes: list[BaseRoute] = []
    for tag in TAGS:
        for resource in tag.resources:
            routes += resource.ROUTES
    return routes


def describe_api(settings: Settings) -> OpenApi:
    """Return the API description of a server with these settings."""
    return OpenApi(settings, TAGS)
