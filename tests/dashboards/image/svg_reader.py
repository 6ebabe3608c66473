"""The contents of an SVG, as a program that draws it reads them."""

import xml.etree.ElementTree as ET


def parse(svg: str) -> ET.Element:
    """The root element; fails where it is no XML."""
    return ET.fromstring(svg)


def names_of(svg: str) -> set[str]:
    """The names of all elements."""
    return {element.tag.rpartition("}")[2] for element in parse(svg).iter()}


def texts_of(svg: str) -> list[str]:
    """All texts, each of their lines, in their order."""
    return [element.text or "" for element in parse(svg).iter() if element.tag.endswith(("}text", "}tspan"))]


def addresses_of(svg: str) -> set[str]:
    """Everything that an attribute refers to."""
    root = parse(svg)
    named = {value for one in root.iter() for name, value in one.attrib.items() if name.endswith(("href", "src"))}
    return named | {value for one in root.iter() for value in one.attrib.values() if "url(" in value}
