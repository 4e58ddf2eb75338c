"""What both formats of OpenAI share: their errors."""

from __future__ import annotations

from typing import Any

from whet.testing.model.script import Fault

_ERRORS: dict[Fault, tuple[str, str | None, str]] = {
    "auth": ("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    "model-rejected": (
        "invalid_request_error",
        "model_not_found",
        "The model `{model}` does not exist or you do not have access to it.",
    ),
    "bad-request": ("invalid_request_error", None, "Invalid request."),
    "context": (
        "invalid_request_error",
        "context_length_exceeded",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
    ),
    "rate-limit": ("rate_limit_error", "rate_limit_exceeded", "Rate limit reached."),
    "server": ("server_error", None, "The server had an error while processing your request."),
    "overloaded": ("server_error", "server_is_overloaded", "The server is currently overloaded."),
}


def error_of(fault: Fault, message: str | None, model: str) -> dict[str, Any]:
    """An error with its type and code."""
    kind, code, text = _ERRORS[fault]
    return {"error": {"message": message or text.format(model=model), "type": kind, "param": None, "code": code}}
