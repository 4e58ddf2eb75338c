// The events of a run as they happen. EventSource cannot send the key in a header, so this reads the stream itself.

import { ask, path, pause, Problem } from "./api.js";

const LAST = ["run_completed", "run_failed", "run_cancelled"];
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15000;
// The service sends something every 15 seconds. A connection that is silent for longer is dead.
const SILENCE_MS = 40000;

/** Every event of a run, once each, to the last. If the connection breaks, this continues after the last event. */
export async function* eventsOf(runId, signal, tellState) {
  let seen = null;
  let wait = FIRST_WAIT_MS;
  while (true) {
    try {
      for await (const event of connection(runId, seen, signal, tellState)) {
        seen = event.id;
        wait = FIRST_WAIT_MS;
        yield event;
        if (LAST.includes(event.type)) return;
      }
    } catch (error) {
      if (signal.aborted || (error instanceof Problem && error.status >= 400 && error.status < 500 && error.status !== 429)) {
        throw error;
      }
    }
    tellState("lost");
    await pause(wait, signal);
    wait = Math.min(wait * 2, LONGEST_WAIT_MS);
  }
}

async function* connection(runId, seen, signal, tellState) {
  const silent = new AbortController();
  const headers = { accept: "text/event-stream", ...(seen === null ? {} : { "last-event-id": seen }) };
  const response = await ask(path("runs", runId, "events"), { signal: AbortSignal.any([signal, silent.signal]), headers });
  tellState("connected");
  let timer = setTimeout(() => silent.abort(), SILENCE_MS);
  let rest = "";
  try {
    for await (const text of texts(response.body)) {
      clearTimeout(timer);
      timer = setTimeout(() => silent.abort(), SILENCE_MS);
      const parts = (rest + text).split("\n\n");
      rest = parts.pop();
      yield* parts.map(eventIn).filter(Boolean);
    }
  } finally {
    clearTimeout(timer);
  }
}

async function* texts(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    while (true) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function eventIn(lines) {
  const event = {};
  for (const line of lines.split("\n")) {
    const [, name, value] = /^(id|event|data): ?(.*)$/.exec(line) ?? [];
    if (name) event[name] = value;
  }
  return event.data === undefined ? null : { id: event.id, type: event.event, data: JSON.parse(event.data) };
}
