// Paths as an agent saw them, without the places that differ from trial to trial.

// A workspace, a home and a temporary folder have a number in the scratch folder of a run. The counts are bounds for texts that look like one long path.
const LIVE = /(?:\/[\w.@+-]{1,64}){0,8}\/whet-\w{1,32}\/([wht])\d+(\/?)/g;
const OTHERS = { h: "~", t: "$TMPDIR" };

/** A text in which paths start at the workspace, at `~` or at `$TMPDIR`. */
export function withoutLivePaths(text) {
  if (!text.includes("/whet-")) return text;
  return text.replace(LIVE, (_, folder, slash) => (folder === "w" ? (slash ? "" : ".") : `${OTHERS[folder]}${slash}`));
}
