"""Pages for people: what they are filled with, the templates that they are made from, the style sheets they share."""
