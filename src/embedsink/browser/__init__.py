"""The modules that browsers load."""
