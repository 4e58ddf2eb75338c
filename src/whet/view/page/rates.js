// Rates and their differences: intervals for few trials, as whet reckons them elsewhere.

const Z = 1.96;

/** A share with Wilson's 95 % interval. */
export function wilson(passed, total) {
  const value = passed / total;
  const middle = (value + Z ** 2 / (2 * total)) / (1 + Z ** 2 / total);
  const half = (Z * Math.sqrt((value * (1 - value)) / total + Z ** 2 / (4 * total ** 2))) / (1 + Z ** 2 / total);
  return { value, low: Math.max(0, middle - half), high: Math.min(1, middle + half), passed, total };
}

/** The difference of two shares with its 95 % interval (Newcombe, from both of Wilson's). */
function difference(before, after) {
  const value = after.value - before.value;
  return {
    value,
    low: value - Math.hypot(after.value - after.low, before.high - before.value),
    high: value + Math.hypot(after.high - after.value, before.value - before.low),
  };
}

/** How often chance alone makes so large a difference of a case whose trials pass or fail (Fisher). */
function chance(before, after) {
  const [first, second, passes] = [before.total, after.total, before.passed + after.passed];
  const ways = (passed) => Math.exp(logChoose(second, passed) + logChoose(first, passes - passed));
  const observed = ways(after.passed);
  let [sum, all] = [0, 0];
  for (let passed = Math.max(0, passes - first); passed <= Math.min(second, passes); passed += 1) {
    all += ways(passed);
    if (ways(passed) <= observed * (1 + 1e-9)) sum += ways(passed);
  }
  return sum / all;
}

function logChoose(all, some) {
  let sum = 0;
  for (let step = 1; step <= some; step += 1) sum += Math.log((all - some + step) / step);
  return sum;
}

/** The cases that both arms of a comparison have, each with its difference; by scores there is no interval. */
export function movesOf({ cases, scored }) {
  const both = cases.filter((each) => each.baseline !== null && each.candidate !== null);
  return both.map((each) => {
    const move = { name: each.case, before: each.baseline, after: each.candidate, value: rounded(each.candidate - each.baseline), decided: !each.may_be_chance && each.baseline !== each.candidate, among: both.length };
    if (scored) return { ...move, low: null, high: null, chance: null };
    const [before, after] = [wilson(Math.round(each.baseline * each.baseline_trials), each.baseline_trials), wilson(Math.round(each.candidate * each.candidate_trials), each.candidate_trials)];
    const { low, high } = difference(before, after);
    return { ...move, low, high, chance: chance(before, after) };
  });
}

/** A difference without what arithmetic leaves of equal means. */
function rounded(value) {
  return Math.round(value * 1e9) / 1e9;
}

/** What chance says of a case, by itself and among the others. */
export function chanceText({ chance: own, decided, among, value }) {
  if (!value) return "The same in both arms.";
  if (own === null) return decided ? "Decided for this case." : "Not decided for this case.";
  const alone = `p ${own < 0.001 ? "below 0.001" : own.toFixed(3)} by itself`;
  return decided ? `Decided for this case: ${alone}, and enough among ${among} cases.` : `Not decided for this case: ${alone}, among ${among} cases not enough.`;
}
