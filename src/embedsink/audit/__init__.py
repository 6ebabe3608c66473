"""The audit trail: who did what. An append-only file for each day, with a hash chain (docs/audit.md)."""
