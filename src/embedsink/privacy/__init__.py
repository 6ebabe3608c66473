"""Privacy rules: which personal data is stored, and in which form (docs/privacy.md)."""
