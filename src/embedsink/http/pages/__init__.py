"""The HTML pages: their templates, their content, and their style sheets and scripts."""
