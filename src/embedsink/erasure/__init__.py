"""The erasure of people: durable requests, their execution on a live server, and their certificates."""
