// The cases of a suite, by the names that runs give them.

const MOST_TITLE = 120;

/** The name of each case: its own, or its kind with its number in the suite. */
export function caseNames(cases) {
  const taken = new Set(cases.filter((each) => each.task_id).map((each) => each.task_id.toLowerCase()));
  return cases.map((each, index) => {
    if (each.task_id) return each.task_id;
    let name = `${each.case_kind}-${index + 1}`;
    while (taken.has(name.toLowerCase())) name += "-unnamed";
    return name;
  });
}

/** The task of a case, in one line. */
export function titleOf(document) {
  const text = document?.query ?? document?.instruction ?? document?.prompt ?? document?.environment_ref ?? "";
  const line = String(text).trim().split("\n", 1)[0];
  return line.length > MOST_TITLE ? `${line.slice(0, MOST_TITLE)}…` : line;
}
