"""The directory of viewers, which an identity provider provisions over SCIM 2.0 (docs/scim.md)."""
