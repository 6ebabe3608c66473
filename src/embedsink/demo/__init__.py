"""`embedsink demo`: a server, a host page with a simulated embed, and synthetic traffic."""
