"""Pages for people: templates, their content and their assets."""
