// Requests to the service, over its public API, with the key in the header.

import { key } from "./session.js";

const ROOT = "/api/v1";
const MOST_WAITS = 3;
const LONGEST_WAIT_S = 60;

/** Sends "key" when the service refuses the key, whatever the request was. */
export const refusals = new EventTarget();

/** The service refused a request, or cannot be reached (status 0). */
export class Problem extends Error {
  constructor(status, error, details = []) {
    super(error);
    this.status = status;
    this.details = details;
  }
}

/** The path made of names, which may have any characters. */
export function path(...names) {
  return `${ROOT}/${names.map(encodeURIComponent).join("/")}`;
}

/** The path of a file of a run. */
export function artifactPath(runId, file) {
  return `${path("runs", runId, "artifacts")}/${file.split("/").map(encodeURIComponent).join("/")}`;
}

/** The answer to a request; if the service says to wait, this waits and asks again. */
export async function ask(where, { signal, headers } = {}) {
  for (let waits = 0; ; waits += 1) {
    const response = await reach(where, signal, headers);
    if (response.ok) return response;
    if (response.status === 401) refusals.dispatchEvent(new Event("key"));
    if (response.status !== 429 || waits === MOST_WAITS) throw await problemOf(response);
    await pause(Math.min(Number(response.headers.get("retry-after")) || 1, LONGEST_WAIT_S) * 1000, signal);
  }
}

/** The JSON at a path, with these parameters. */
export async function get(where, signal, parameters = {}) {
  const asked = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined));
  const response = await ask(`${where}${asked.size ? `?${asked}` : ""}`, { signal });
  return response.json();
}

/** Wait, unless the signal aborts. */
export function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, milliseconds);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

async function reach(where, signal, headers) {
  try {
    return await fetch(where, {
      signal,
      headers: { ...headers, authorization: `Bearer ${key()}` },
      credentials: "omit",
      redirect: "error",
      referrerPolicy: "no-referrer",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, "The service cannot be reached. Is it running, and is this device connected?");
  }
}

async function problemOf(response) {
  const body = await response.json().catch(() => null);
  return new Problem(response.status, body?.error ?? `the service answered with status ${response.status}`, body?.details ?? []);
}
