"""The embed protocol (spec 6): messages and their validation. Pure: no clock, disk, network or environment."""
