"""Helpers that read the elements, texts and references of an SVG."""

import xml.etree.ElementTree as ET


def parse(svg: str) -> ET.Element:
    """Return the root element. Raise ParseError if the text is not XML."""
    return ET.fromstring(svg)


def names_of(svg: str) -> set[str]:
    """Return the names of all elements."""
    return {element.tag.rpartition("}")[2] for element in parse(svg).iter()}


def texts_of(svg: str) -> list[str]:
    """Return the lines of all texts, in document order."""
    return [element.text or "" for element in parse(svg).iter() if element.tag.endswith(("}text", "}tspan"))]


def addresses_of(svg: str) -> set[str]:
    """Return all addresses in attributes."""
    root = parse(svg)
    named = {
        value for element in root.iter() for name, value in element.attrib.items() if name.endswith(("href", "src"))
    }
    return named | {value for element in root.iter() for value in element.attrib.values() if "url(" in value}
