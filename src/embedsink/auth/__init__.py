"""API keys, access tokens and logins, and what each of them permits (spec 5)."""
