"""The durable log of everything accepted or quarantined. It knows bytes, not fields."""
