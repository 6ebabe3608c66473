"""The durable log of accepted and quarantined envelopes. It handles bytes, not fields."""
