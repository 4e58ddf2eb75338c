// The key of this session. It is in the storage of this tab and in no cookie, see docs/design/page.md.

const PLACE = "whet-key";
const ANSWER_MS = 200;
let secret = null;
let channel = null;

/** Begin: take the key that this tab keeps, ask the other tabs for one, and call `forgotten` when one of them signs out. */
export async function begin(forgotten) {
  secret = sessionStorage.getItem(PLACE);
  channel = new BroadcastChannel("whet-session");
  channel.addEventListener("message", ({ data }) => {
    if (data?.type === "ask" && key()) channel.postMessage({ type: "key", key: key() });
    if (data?.type === "forget" && key()) {
      forget();
      forgotten();
    }
  });
  await askOtherTabs();
}

/** The key, if there is one. */
export function key() {
  return secret;
}

/** The part of the key that may be shown. */
export function prefix() {
  return (key() ?? "").split("_").slice(0, 2).join("_");
}

/** Keep the key. */
export function keep(fresh) {
  secret = fresh;
  sessionStorage.setItem(PLACE, fresh);
}

/** Forget the key in this tab. */
export function forget() {
  secret = null;
  sessionStorage.removeItem(PLACE);
}

/** Forget the key in every tab of this browser. */
export function forgetEverywhere() {
  forget();
  channel.postMessage({ type: "forget" });
}

/** Ask the other tabs for the key, so that you can open a link in a new tab without signing in again. */
async function askOtherTabs() {
  if (key()) return;
  await new Promise((resolve) => {
    const answered = ({ data }) => {
      if (data?.type !== "key" || typeof data.key !== "string") return;
      keep(data.key);
      resolve();
    };
    channel.addEventListener("message", answered);
    channel.postMessage({ type: "ask" });
    setTimeout(() => {
      channel.removeEventListener("message", answered);
      resolve();
    }, ANSWER_MS);
  });
}
