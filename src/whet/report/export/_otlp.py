"""OpenTelemetry: a trace for each trial, with the GenAI conventions, as OTLP JSON lines or sent to an endpoint."""

from __future__ import annotations

import hashlib
from base64 import b64decode
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib import import_module
from typing import Any
from urllib.parse import unquote

from whet.agents.known import known_agent
from whet.errors import UsageError
from whet.model import codec
from whet.model.run import TrialResult
from whet.model.session import SessionSummary, Usage
from whet.reading.text import count, one_line
from whet.record.read.stream import RecordedAttempt, RecordedTrial, TrialStream
from whet.report.export._steps import ExportStep, ToolStep, steps_of

_INTERNAL, _CLIENT = 1, 3
_ERROR = 2
_SECOND = 1_000_000_000
# The providers of built-in agents, as the conventions for attributes name them.
_PROVIDERS = {"anthropic": "anthropic", "openai": "openai", "gemini": "gcp.gemini"}
_IDS = ("traceId", "spanId", "parentSpanId")
_MOST_BYTES = 1 << 20
_PATIENCE_S = 30
_HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"


def otlp_lines(stream: TrialStream, *, content: bool) -> Iterator[bytes]:
    """Yield a line of OTLP JSON for each trial."""
    to_dict = import_module("google.protobuf.json_format").MessageToDict
    for traces in _traces(stream, content=content):
        document = to_dict(traces, use_integers_for_enums=True)
        for resource in document["resourceSpans"]:
            for span in resource["scopeSpans"][0]["spans"]:
                # In OTLP JSON these are hexadecimal, unlike other bytes.
                span.update((name, b64decode(span[name]).hex()) for name in _IDS if name in span)
        yield codec.encode(document) + b"\n"


def send_traces(stream: TrialStream, endpoint: str, *, content: bool, environ: Mapping[str, str]) -> int:
    """Send each trial to *endpoint*, some at a time; return how many there were."""
    import httpx2  # only this sends anything

    if not endpoint.startswith(("http://", "https://")):
        raise UsageError(f"--endpoint: {endpoint} is not an address", hint="name it as in http://127.0.0.1:4318")
    url = endpoint if endpoint.endswith("/v1/traces") else f"{endpoint.rstrip('/')}/v1/traces"
    protocol = import_module("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    headers = _headers(environ) | {"content-type": "application/x-protobuf"}
    sent_count = waiting = 0
    batch = protocol.ExportTraceServiceRequest()
    with httpx2.Client(headers=headers, timeout=_PATIENCE_S) as client:
        for number, traces in enumerate(_traces(stream, content=content), 1):
            batch.resource_spans.extend(traces.resource_spans)
            waiting += 1
            if batch.ByteSize() < _MOST_BYTES and number < len(stream):
                continue
            try:
                reply = client.post(url, content=batch.SerializeToString())
                refusal = _refusal(reply, protocol.ExportTraceServiceResponse())
            except httpx2.HTTPError as error:
                refusal = f"cannot be reached: {str(error) or type(error).__name__}"
            if refusal:
                arrivals = f"{count(sent_count, 'trial')} had arrived"
                again = f"{arrivals}; exporting again sends the same traces, with the same ids"
                raise UsageError(f"{url} {refusal}", hint=again)
            sent_count, waiting, batch = sent_count + waiting, 0, protocol.ExportTraceServiceRequest()
    return sent_count


def _refusal(reply: Any, answer: Any) -> str | None:
    """Return what a receiver did not take; an answer that cannot be read complains of nothing."""
    if not reply.is_success:
        return f"refused the traces: {one_line(f'{reply.status_code} {reply.text}')}"
    try:
        answer.ParseFromString(reply.content)
    except import_module("google.protobuf.message").DecodeError:
        return None
    partial = answer.partial_success
    message = one_line(f"{count(partial.rejected_spans, 'span')}: {partial.error_message}")
    return f"refused {message}" if partial.rejected_spans else None


def _headers(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that OpenTelemetry reads from the environment, such as a key."""
    pairs = (pair.partition("=") for pair in environ.get(_HEADERS, "").split(",") if "=" in pair)
    return {name.strip().lower(): unquote(value.strip()) for name, _, value in pairs}


def _traces(stream: TrialStream, *, content: bool) -> Iterator[Any]:
    """Yield the trace of each trial."""
    protocol = import_module("opentelemetry.proto.trace.v1.trace_pb2")
    run_file = stream.asked
    resource = {"service.name": "whet", "service.version": run_file.whet_version, "whet.run": stream.run_dir.name}
    for trial in stream:
        traces = protocol.TracesData()
        spans = traces.resource_spans.add()
        _put(spans.resource.attributes, resource | {"test.suite.name": trial.result.key.suite})
        scope = spans.scope_spans.add()
        scope.scope.name = "whet"
        _Trace(trial, scope.spans, content=content).add_trial()
        yield traces


class _Trace:
    """Adds the spans of one trial; their ids follow from the names of run and trial, so that they never change."""

    def __init__(self, trial: RecordedTrial, spans: Any, *, content: bool) -> None:
        self._trial = trial
        self._spans = spans
        self._content = content
        self._id = hashlib.sha256(f"{trial.run}\0{trial.result.key}".encode()).digest()[:16]
        # The latest moment that is known; what has none of its own happened then.
        self._now = 0

    def add_trial(self) -> None:
        result = self._trial.result
        key, failure = result.key, result.failure
        self._now = start = _nanoseconds(result.started_at) or 0
        end = start + int(result.duration_s * _SECOND)
        span = self._add("", f"trial {key.case}", "trial", (start, end))
        _put(
            span.attributes,
            {
                "test.case.name": key.case,
                "test.case.result.status": _result_status(result),
                "whet.runner": key.runner,
                "whet.arm": key.arm,
                "whet.trial": key.number,
                "whet.status": result.status,
                "whet.score": result.score,
                "whet.flaky": result.flaky,
                "whet.steps": result.steps,
                "whet.cost_usd": result.total_usage.cost_usd,
                "whet.cause": failure.cause if failure else None,
                "whet.failure_class": result.failure_class.id if result.failure_class else None,
                "whet.tags": self._trial.tags or None,
                "whet.skills": tuple(detection.skill for detection in result.detected_skills) or None,
                "error.type": failure.code if failure else None,
            },
        )
        if not result.passed:
            self._fail(span, failure.message if failure else None)
        self._add_grades(span, end)
        for attempt in self._trial.attempts():
            self._add_attempt(attempt, end)

    def _add_grades(self, span: Any, end: int) -> None:
        for grade in self._trial.result.grades:
            event = span.events.add(name="gen_ai.evaluation.result", time_unix_nano=end)
            if grade.undecided:
                label = "undecided"
            elif grade.passed:
                label = "pass"
            else:
                label = "fail"
            _put(
                event.attributes,
                {
                    "gen_ai.evaluation.name": grade.check,
                    "gen_ai.evaluation.score.value": grade.value,
                    "gen_ai.evaluation.score.label": label,
                    "gen_ai.evaluation.explanation": (grade.reason or None) if self._content else None,
                },
            )

    def _add_attempt(self, recorded_attempt: RecordedAttempt, latest: int) -> None:
        attempt, session = recorded_attempt.attempt, recorded_attempt.session
        agent = (session.agent if session else self._trial.agent) or self._trial.result.key.runner
        start = (_nanoseconds(session.started_at) if session else None) or self._now
        end = max(start, min(latest, start + int(attempt.duration_s * _SECOND)))
        self._now = start
        name = f"attempt {attempt.number}"
        span = self._add("trial", f"invoke_agent {agent}", name, (start, end))
        attributes = {"gen_ai.agent.version": session.version if session else None, "whet.attempt": attempt.number}
        _put(
            span.attributes,
            self._invoking(agent, session) | attributes | {"whet.status": attempt.status} | _tokens(attempt.usage),
        )
        if attempt.failure is not None:
            _put(span.attributes, {"error.type": attempt.failure.code})
            self._fail(span, attempt.failure.message)
        if session is not None:
            self._put_messages(span, [session.prompt], [session.final_output])
            self._add_steps(name, steps_of(session, recorded_attempt.events()), session, end)
        self._now = end

    def _invoking(self, agent: str, session: SessionSummary | None) -> dict[str, Any]:
        return {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": _provider(session.agent if session else agent),
            "gen_ai.agent.name": agent,
            "gen_ai.conversation.id": session.session_id if session else None,
            "gen_ai.request.model": (session.model if session else None) or self._trial.model,
        }

    def _add_steps(self, above: str, steps: list[ExportStep], session: SessionSummary, latest: int) -> None:
        for number, step in enumerate(steps):
            if step.source == "agent":
                self._add_chat(f"{above}/{number}", above, step, session, latest)
            for place, call in enumerate(step.calls):
                self._add_call(f"{above}/{number}.{place}", above, call, session, latest)

    def _add_chat(self, name: str, above: str, step: ExportStep, session: SessionSummary, latest: int) -> None:
        start, end = self._now, self._later(step.at, latest)
        model = session.model or self._trial.model
        span = self._add(above, f"chat {model}" if model else "chat", name, (start, end), kind=_CLIENT)
        _put(
            span.attributes,
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": _provider(session.agent),
                "gen_ai.request.model": model,
            }
            | (_tokens(step.usage) if step.usage else {}),
        )
        self._put_messages(span, [], step.texts)

    def _add_call(self, name: str, above: str, call: ToolStep, session: SessionSummary, latest: int) -> None:
        start = self._later(call.asked.at, latest)
        span = self._add(above, f"execute_tool {call.asked.tool}", name, (start, start))
        inner = f"{name}/agent"
        if call.inside:
            agent = self._add(name, f"invoke_agent {call.sub_agent}", inner, (start, start))
            _put(agent.attributes, self._invoking(str(call.sub_agent), session))
            self._add_steps(inner, call.inside, session, latest)
            agent.end_time_unix_nano = self._now
        result = call.result
        span.end_time_unix_nano = self._later(result.at if result else None, latest)
        has_args = self._content and call.asked.args is not None
        _put(
            span.attributes,
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": call.asked.tool,
                "gen_ai.tool.call.id": call.id,
                "gen_ai.tool.call.arguments": codec.encode(call.asked.args).decode() if has_args else None,
                "gen_ai.tool.call.result": result.output if result and self._content else None,
                "process.exit.code": call.exit_code,
            },
        )
        if (result and result.ok is False) or call.exit_code:
            _put(span.attributes, {"error.type": "tool" if call.exit_code is None else f"exit {call.exit_code}"})
            self._fail(span, None)

    def _put_messages(self, span: Any, questions: list[str], answers: list[str]) -> None:
        """Add what was said, if it is wanted."""
        for name, role, texts in (("input", "user", questions), ("output", "assistant", answers)):
            parts = [{"type": "text", "content": text} for text in texts if text]
            if parts and self._content:
                message = [{"role": role, "parts": parts}]
                _put(span.attributes, {f"gen_ai.{name}.messages": codec.encode(message).decode()})

    def _add(self, above: str, title: str, name: str, times: tuple[int, int], kind: int = _INTERNAL) -> Any:
        span = self._spans.add(trace_id=self._id, span_id=self._span_id(name), name=title, kind=kind)
        if above:
            span.parent_span_id = self._span_id(above)
        span.start_time_unix_nano, span.end_time_unix_nano = times
        return span

    def _span_id(self, name: str) -> bytes:
        return hashlib.sha256(self._id + name.encode()).digest()[:8]

    def _fail(self, span: Any, message: str | None) -> None:
        span.status.code = _ERROR
        if message and self._content:
            span.status.message = message

    def _later(self, at: str | None, latest: int) -> int:
        """Return a time that an agent reports, unless time would run backwards or beyond the attempt."""
        self._now = max(self._now, min(_nanoseconds(at) or self._now, latest))
        return self._now


def _result_status(result: TrialResult) -> str | None:
    """Return what OpenTelemetry calls the result of a test; an errored trial has none."""
    if result.status == "errored":
        return None
    return "pass" if result.passed else "fail"


def _provider(agent: str) -> str | None:
    """Return who answers an agent of whet, if no model is known to be asked."""
    known = known_agent(agent)
    return _PROVIDERS.get(known.provider or "") if known else None


def _tokens(usage: Usage) -> dict[str, Any]:
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
        "whet.tokens_guessed": usage.tokens_guessed or None,
        "whet.cost_usd": usage.cost_usd,
    }


def _nanoseconds(at: str | None) -> int | None:
    try:
        moment = datetime.fromisoformat(at) if at else None
    except ValueError:
        return None
    if moment is None:
        return None
    aware_moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0, int(aware_moment.timestamp() * 1_000_000) * 1000)


def _put(attributes: Any, values: Mapping[str, Any]) -> None:
    """Add the attributes that are known."""
    for name, value in values.items():
        if value is None:
            continue
        any_value = attributes.add(key=name).value
        match value:
            case bool():
                any_value.bool_value = value
            case int():
                any_value.int_value = value
            case float():
                any_value.double_value = value
            case tuple():
                any_value.array_value.values.extend(type(any_value)(string_value=text) for text in value)
            case _:
                any_value.string_value = value
