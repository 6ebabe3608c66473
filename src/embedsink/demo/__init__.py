"""`embedsink demo`: a real server, a host page and synthetic traffic."""
