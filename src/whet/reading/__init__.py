"""Read what people write: text, paths, documents, fields, patterns and schemas, each with the place of a mistake."""
