"""The embed protocol (spec 6): message types and validation. It uses no clock, disk, network or environment."""
