"""The fictional companies, dashboards, AI questions and errors of the demo's traffic."""

from typing import Literal, NamedTuple


class Deployment(NamedTuple):
    """One deployment: its number, the origin of its host page, and its tenants."""

    number: int
    origin: str
    tenants: tuple[str, ...]
    weight: int  # the share of the traffic, relative to other deployments


class Customer(NamedTuple):
    """The viewer of the demo's host page, with the deployment number and the tenant."""

    deployment: int
    tenant: str
    viewer: str


class Dashboard(NamedTuple):
    """A published dashboard of the embed."""

    public_id: str
    title: str
    widgets: tuple[str, ...]  # the titles of widgets
    members: tuple[str, ...]  # the measures that a viewer can drill into
    dimension: str  # the dimension of the filter
    values: tuple[str, ...]  # the values of this dimension

    @property
    def path(self) -> str:
        """The path of the dashboard inside the embed."""
        return f"/dashboards/{self.public_id}"


class Failure(NamedTuple):
    """An error that the embed shows."""

    message: str
    name: str | None
    context: str | None
    is_fatal: bool | None = None
    weight: int = 2  # the frequency, relative to other failures
    newest_sync: Literal["fixes", "causes"] | None = None  # whether the newest dbt sync fixes or causes the error


DEPLOYMENTS = (
    Deployment(12, "https://app.acme.example", ("acme-north", "acme-south", "acme-labs"), 5),
    Deployment(27, "https://portal.globex.example", ("globex", "globex-retail"), 3),
    Deployment(31, "https://my.initech.example", ("initech",), 2),
    Deployment(44, "https://insights.umbra.example", ("umbra-eu", "umbra-us"), 1),
)

# The first tenant has had no session for two weeks; the second is new this week.
QUIET_TENANT = "acme-labs"
NEW_TENANT = "umbra-us"

ORIGINS = tuple(deployment.origin for deployment in DEPLOYMENTS)

# Only the demo's page sends events of this deployment, so its reports count the user's own actions.
CUSTOMER = Customer(7, "fernway", "u_marta")

DASHBOARDS = (
    Dashboard(
        "d_revenue",
        "Revenue overview",
        ("Revenue by month", "Top 20 customers", "Margin by region", "New against recurring"),
        ("orders.revenue", "orders.gross_margin", "orders.count"),
        "orders.region",
        ("North", "South", "DACH", "Benelux"),
    ),
    Dashboard(
        "d_churn",
        "Churn & retention",
        ("Retention by cohort", "Churned accounts", "Reasons for leaving"),
        ("subscriptions.churned_accounts", "subscriptions.net_retention"),
        "subscriptions.plan",
        ("Free", "Team", "Enterprise"),
    ),
    Dashboard(
        "d_support",
        "Support desk",
        ("Open tickets", "First response time", "Satisfaction", "Tickets by product"),
        ("tickets.open_count", "tickets.first_response_minutes", "tickets.satisfaction"),
        "tickets.priority",
        ("Low", "Normal", "Urgent"),
    ),
    Dashboard(
        "d_stock",
        "Stock & deliveries",
        ("Days of stock", "Late shipments", "Stock by warehouse"),
        ("shipments.late_count", "stock.days_left"),
        "stock.warehouse",
        ("Rotterdam", "Leipzig", "Lyon"),
    ),
    Dashboard(
        "d_marketing",
        "Marketing funnel",
        ("Leads by channel", "Cost per lead", "Conversion"),
        ("leads.count", "leads.cost_per_lead", "leads.conversion"),
        "leads.channel",
        ("Search", "Newsletter", "Events", "Referral"),
    ),
)

# A dashboard without a view in the last two weeks.
UNUSED_DASHBOARD = Dashboard(
    "d_board",
    "Board report, second quarter",
    ("Bookings", "Burn and runway"),
    ("bookings.amount", "finance.runway_months"),
    "bookings.segment",
    ("Enterprise", "Midmarket"),
)

# The path and the title of each page of the app.
APP_PAGES = (
    ("/home", "Home"),
    ("/workbooks/wb_114", "Quarterly planning"),
    ("/workbooks/wb_208", "Pricing experiments"),
    ("/folders/finance", "Finance"),
    ("/folders/shared", "Shared with me"),
    ("/dashboards/d_revenue", "Revenue overview"),
)

QUESTIONS = (
    "What was our revenue last month compared with the month before?",
    "Which ten customers grew fastest this quarter?",
    "Why did the margin fall in the south region in October?",
    "How many trials became paying customers in each channel?",
    "Show churned accounts by plan and reason",
    "Which products have fewer than 14 days of stock?",
    "Average first response time per weekday, please",
    "Wie hoch war der Umsatz in DACH letzte Woche?",
    "Quels clients n'ont rien commandé depuis 90 jours ?",
    "Forecast the number of open tickets for next week",
    "Is there a link between discount and churn?",
    "Top 5 warehouses by late shipments this year",
)

# What viewers say about a bad answer.
COMPLAINTS = ("This is the wrong year.", "The total differs from our report.", "I asked for a list, not a chart.")

AGENTS = ("analyst", "copilot")

_TIMEOUT = Failure("Query timed out after 30 s", "QueryTimeoutError", "widget")
_CRASH = Failure("Cannot read properties of undefined (reading 'series')", "TypeError", "render", True)

# Each message occurs on every working day, so only a sync changes the number of error groups.
FAILURES = (
    _TIMEOUT,
    _TIMEOUT._replace(weight=9, newest_sync="fixes"),
    _CRASH,
    _CRASH._replace(weight=9, newest_sync="fixes"),
    Failure("Result has 1,204,118 rows; the limit is 500,000", "ResultTooLargeError", "download", False),
    Failure("Your session has expired. Please reload the page.", "SessionExpiredError", "auth", True),
    Failure("Network request failed", None, None),
    Failure("There is no measure orders.net_margin", "UnknownMemberError", "widget", False, newest_sync="causes"),
)

LOCALES = ("en", "de", "fr-CA", "en-GB", "nl")

USER_AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:145.0) Gecko/20100101 Firefox/145.0",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Safari/605.1.15",
)
