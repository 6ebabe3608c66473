"""The embed protocol (spec 6): message types and validation. Pure: no clock, disk, network or environment."""
