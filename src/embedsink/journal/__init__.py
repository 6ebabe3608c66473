"""The durable log of everything that a 202 acknowledges. It handles bytes, not fields."""
