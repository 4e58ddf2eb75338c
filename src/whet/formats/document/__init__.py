"""JSON and YAML files as documents: plain values, each with its line, and nothing that could be read in two ways."""

from whet.formats.document.base import Document, DocumentError, Node, Repeat
from whet.formats.document.reading import SUFFIXES, read_document

__all__ = ["SUFFIXES", "Document", "DocumentError", "Node", "Repeat", "read_document"]
