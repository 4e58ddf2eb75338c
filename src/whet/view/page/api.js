// Requests over HTTP: to the service with the key in the header, or to `whet view`, whose address holds its token.

import { key } from "./session.js";

const ROOT = "/api/v1";
const MOST_WAITS = 3;
const LONGEST_WAIT_S = 60;

/** Sends "key" when the service refuses the key, whatever the request was. */
export const refusals = new EventTarget();

/** A request was refused, or the other side cannot be reached (status 0). */
export class Problem extends Error {
  constructor(status, error, details = []) {
    super(error);
    this.status = status;
    this.details = details;
  }
}

/** One part of an address, encoded as every writer of documents does it. */
export function encoded(part) {
  return encodeURIComponent(part).replace(/[!'()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`);
}

/** The path of the service made of names, which may have any characters. */
export function path(...names) {
  return `${ROOT}/${names.map(encoded).join("/")}`;
}

/** A path with these parameters; those that are null are left out. */
function withParameters(where, parameters = {}) {
  const asked = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined));
  return asked.size ? `${where}?${asked}` : where;
}

/** The answer to a request; if the service says to wait, this waits and asks again. */
export async function ask(where, { signal, headers, method = "GET", body } = {}) {
  for (let waits = 0; ; waits += 1) {
    const response = await reach(where, { signal, headers, method, body });
    if (response.ok) return response;
    if (response.status === 401) refusals.dispatchEvent(new Event("key"));
    if (response.status !== 429 || waits === MOST_WAITS) throw await problemOf(response);
    await pause(Math.min(Number(response.headers.get("retry-after")) || 1, LONGEST_WAIT_S) * 1000, signal);
  }
}

/** The JSON at a path of the service, with these parameters. */
export async function fetched(where, signal, parameters = {}) {
  const response = await ask(withParameters(where, parameters), { signal });
  return response.json();
}

/** Send JSON, and return the answer; null if it has no content. */
export async function sent(method, where, content, signal) {
  const request = content === undefined ? {} : { body: JSON.stringify(content), headers: { "content-type": "application/json" } };
  const response = await ask(where, { method, signal, ...request });
  const text = await response.text();
  return text ? JSON.parse(text) : null;
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

async function reach(where, { signal, headers, method, body }) {
  const secret = key();
  try {
    return await fetch(where, {
      signal,
      method,
      body,
      headers: secret ? { ...headers, authorization: `Bearer ${secret}` } : headers,
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
  return new Problem(response.status, body?.error ?? body?.problem ?? `the service answered with status ${response.status}`, body?.details ?? []);
}
