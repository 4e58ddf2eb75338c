"""The schemas of an OpenAPI document: follow its references, bundle what a schema needs, make an example of one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NoReturn
from urllib.parse import unquote

from msgspec.structs import replace

from whet.errors import SuiteError
from whet.reading.fields import Fields
from whet.reading.text import shown

_MOST_SCHEMAS = 1000
_MOST_PARTS = 1000
_DEFS = "#/$defs/"
# Keywords that hold schemas by name, and those that hold values which only look like schemas.
_BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_VALUES = frozenset({"enum", "const", "default", "example", "examples", "required", "x-examples"})
# Words of OpenAPI, not of JSON Schema.
_OWN = frozenset({"discriminator", "xml", "externalDocs", "nullable"})
_BY_TYPE: dict[str, Any] = {"string": "text", "integer": 1, "number": 1, "boolean": True, "array": [], "null": None}
_BY_FORMAT = {
    "date": "2026-01-05",
    "date-time": "2026-01-05T10:15:30Z",
    "email": "ada@example.org",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "uri": "https://example.org/",
}


class References:
    """Finds what `$ref`s refer to, within one document only."""

    def __init__(self, document: Fields) -> None:
        self._document = document

    def followed(self, fields: Fields) -> Fields:
        """Return what *fields* refers to, over as many references as it takes; raises `SuiteError` for a loop."""
        trail: list[str] = []
        while isinstance(reference := fields.values.get("$ref"), str):
            if reference in trail:
                self._stop(fields, f"refers to itself: {' -> '.join((*trail, reference))}")
            trail.append(reference)
            target = self.target(reference, fields)
            fields = replace(fields, path=_place(reference)).object("", target)
        return fields

    def target(self, reference: str, fields: Fields) -> Any:
        """Return what *reference* refers to; raises `SuiteError` if that is outside of the document, or not there."""
        if not reference.startswith("#/"):
            hint = "put everything into one document first: nothing is fetched"
            self._stop(fields, f"must refer to a place in this document (#/...), not to {shown(reference)}", hint)
        node: Any = self._document.values
        for step in _steps(reference):
            if isinstance(node, list) and step.isdecimal() and int(step) < len(node):
                node = node[int(step)]
            elif isinstance(node, Mapping) and step in node:
                node = node[step]
            else:
                self._stop(fields, f"refers to {shown(reference)}, which is not there")
        return node

    def _stop(self, fields: Fields, message: str, hint: str | None = None) -> NoReturn:
        raise SuiteError([fields.findings.at(fields.place("$ref"), message, hint)])


def _steps(reference: str) -> list[str]:
    return [unquote(step).replace("~1", "/").replace("~0", "~") for step in reference[1:].split("/")[1:]]


def _place(reference: str) -> str:
    return ".".join(_steps(reference))


def bundle(references: References, fields: Fields, schema: Any) -> dict[str, Any]:
    """Return *schema* as JSON Schema, with all that it refers to in its `$defs`, each once."""
    bundler = _Bundle(fields)
    root_schema = bundler.portable(schema)
    definitions: dict[str, Any] = {}
    # Bundling one schema may name more of them.
    for reference, name in bundler.waiting:
        definitions[name] = bundler.portable(references.target(reference, fields))
    if not isinstance(root_schema, dict):
        # True and false are schemas too, but a skill has an object.
        root_schema = {"allOf": [root_schema]}
    return {**root_schema, "$defs": definitions} if definitions else root_schema


class _Bundle:
    """Names the schemas that are referred to, each once, and puts these names in the place of references."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._names: dict[str, str] = {}
        self.waiting: list[tuple[str, str]] = []

    def portable(self, schema: Any) -> Any:
        """Return *schema* with references into `$defs`, and without what only OpenAPI says."""
        if not isinstance(schema, Mapping):
            return schema
        result: dict[str, Any] = {}
        for key, value in schema.items():
            if key == "$ref" and isinstance(value, str):
                result[key] = f"{_DEFS}{self._name(value)}"
            elif key in _BY_NAME and isinstance(value, Mapping):
                result[key] = {name: self.portable(subschema) for name, subschema in value.items()}
            elif key in _VALUES:
                result[key] = value
            elif isinstance(value, list):
                result[key] = [self.portable(subschema) for subschema in value]
            else:
                result[key] = self.portable(value)
        return _modern(result)

    def _name(self, reference: str) -> str:
        """Return a short name for what *reference* refers to, different from all others."""
        if reference not in self._names:
            number = len(self._names)
            if number >= _MOST_SCHEMAS:
                what = f"needs more than {_MOST_SCHEMAS:,} schemas"
                raise SuiteError([self._fields.findings.at(self._fields.path, what)])
            last = re.sub(r"[^A-Za-z0-9_.-]+", "_", reference.rpartition("/")[2])[:60] or "schema"
            name, used_names = last, set(self._names.values())
            while name in used_names:
                name, number = f"{last}_{number}", number + 1
            self._names[reference] = name
            self.waiting.append((reference, name))
        return self._names[reference]


def _modern(schema: dict[str, Any]) -> dict[str, Any]:
    """Return *schema* in the words of JSON Schema: OpenAPI 3.0 has some of its own."""
    nullable = schema.get("nullable") is True
    modern_schema = {key: value for key, value in schema.items() if key not in _OWN}
    for limit, exclusive_limit in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(modern_schema.get(exclusive_limit), bool):
            exclusive = modern_schema.pop(exclusive_limit)
            if exclusive and limit in modern_schema:
                modern_schema[exclusive_limit] = modern_schema.pop(limit)
    if nullable:
        return {"anyOf": [modern_schema, {"type": "null"}]}
    return modern_schema


def sample(schema: Mapping[str, Any]) -> Any:
    """Return a value as a bundled *schema* describes it: its example, or the least that it asks for."""
    return _Sampler(schema).value(schema)


class _Sampler:
    """Makes an example, within a budget: a few schemas that refer to each other can ask for more than there is."""

    def __init__(self, root_schema: Mapping[str, Any]) -> None:
        self._known = root_schema.get("$defs", {})
        self._left = _MOST_PARTS

    def value(self, schema: Any, within: tuple[str, ...] = ()) -> Any:
        """Return a value for *schema*, which is *within* the references that led to it."""
        self._left -= 1
        if not isinstance(schema, Mapping) or self._left < 0:
            return None
        if isinstance(reference := schema.get("$ref"), str):
            name = reference.removeprefix(_DEFS)
            return None if name in within else self.value(self._known.get(name), (*within, name))
        for key in ("example", "default", "const"):
            if key in schema:
                return schema[key]
        if examples := schema.get("examples") or schema.get("enum"):
            return examples[0]
        if parts := schema.get("allOf"):
            samples = [self.value(part, within) for part in parts]
            return {
                key: value
                for sample_part in samples
                if isinstance(sample_part, Mapping)
                for key, value in sample_part.items()
            }
        choices = schema.get("oneOf") or schema.get("anyOf")
        return self.value(choices[0], within) if choices else self._plain(schema, within)

    def _plain(self, schema: Mapping[str, Any], within: tuple[str, ...]) -> Any:
        kinds = schema.get("type")
        kind = (
            next((type_name for type_name in kinds if type_name != "null"), "null")
            if isinstance(kinds, list)
            else kinds
        )
        properties = schema.get("properties", {})
        if kind == "object" or (kind is None and properties):
            return {name: self.value(properties.get(name), within) for name in schema.get("required", ())}
        if kind == "array" and schema.get("minItems", 0) > 0:
            return [self.value(schema.get("items"), within)]
        if kind in {"integer", "number"} and "minimum" in schema:
            return schema["minimum"]
        if kind == "string" and (example := _BY_FORMAT.get(str(schema.get("format")))):
            return example
        return _BY_TYPE.get(str(kind), "text")
