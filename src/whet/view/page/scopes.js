// What the key of this session may do. The service decides; the pages only leave out what it would refuse.

import { fetched, path } from "./api.js";
import { key } from "./session.js";

let [of, asked] = [null, null];

/** The scopes of the key; asked once for each key. */
export async function scopes() {
  if (of !== key()) {
    of = key();
    asked = fetched(path("key")).then((known) => known.scopes);
    // Who could not ask asks again.
    asked.catch(() => (of = null));
  }
  return asked;
}
