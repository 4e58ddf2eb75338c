// The key of this session. It is in the storage of this tab and in no cookie, see docs/design/page.md.

const PLACE = "whet-key";
const ANSWER_MS = 200;
const channel = new BroadcastChannel("whet-session");

/** The key, if there is one. */
export function key() {
  return sessionStorage.getItem(PLACE);
}

/** The part of the key that may be shown. */
export function prefix() {
  return (key() ?? "").split("_").slice(0, 2).join("_");
}

/** Keep the key. */
export function keep(secret) {
  sessionStorage.setItem(PLACE, secret);
}

/** Forget the key in this tab. */
export function forget() {
  sessionStorage.removeItem(PLACE);
}

/** Forget the key in every tab of this browser. */
export function forgetEverywhere() {
  forget();
  channel.postMessage({ type: "forget" });
}

/** Ask the other tabs for the key, so that you can open a link in a new tab without signing in again. */
export async function askOtherTabs() {
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

/** Answer other tabs that ask for the key, and call `forgotten` when one of them signs out. */
export function attend(forgotten) {
  channel.addEventListener("message", ({ data }) => {
    if (data?.type === "ask" && key()) channel.postMessage({ type: "key", key: key() });
    if (data?.type === "forget" && key()) {
      forget();
      forgotten();
    }
  });
}
