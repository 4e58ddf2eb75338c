// Two lists beside each other: the parts that are the same in both, and those that differ.

// A table of more cells than this takes longer than anybody waits, and more memory than a phone has.
const MOST_COMPARED = 2000;

/** The parts of both lists in their order: how many items of each they hold, and whether these are the same. */
export function aligned(first, second, keyOf) {
  const [one, other] = [first.map(keyOf), second.map(keyOf)];
  const least = Math.min(one.length, other.length);
  let [head, tail] = [0, 0];
  while (head < least && one[head] === other[head]) head += 1;
  while (tail < least - head && one[one.length - 1 - tail] === other[other.length - 1 - tail]) tail += 1;
  const parts = [];
  const add = (same, left, right) => {
    const last = parts.at(-1);
    if (last?.same === same) {
      last.first += left;
      last.second += right;
    } else if (left || right) parts.push({ same, first: left, second: right });
  };
  add(true, head, head);
  const [left, right] = [one.slice(head, one.length - tail), other.slice(head, other.length - tail)];
  const compared = [left.slice(0, MOST_COMPARED), right.slice(0, MOST_COMPARED)];
  match(...compared, add);
  // Of what is too long to be compared, only the beginning and the end are.
  add(false, left.length - compared[0].length, right.length - compared[1].length);
  add(true, tail, tail);
  return parts;
}

/** Tell `add` which items both have in the same order, as many as there can be, and which they do not. */
function match(left, right, add) {
  const width = right.length + 1;
  // How many items both have in common from these two places on.
  const common = new Uint16Array((left.length + 1) * width);
  for (let one = left.length - 1; one >= 0; one -= 1) {
    for (let other = right.length - 1; other >= 0; other -= 1) {
      const place = one * width + other;
      common[place] = left[one] === right[other] ? common[place + width + 1] + 1 : Math.max(common[place + width], common[place + 1]);
    }
  }
  let [one, other] = [0, 0];
  while (one < left.length || other < right.length) {
    const place = one * width + other;
    if (one < left.length && other < right.length && left[one] === right[other]) {
      add(true, 1, 1);
      one += 1;
      other += 1;
    } else if (one < left.length && (other === right.length || common[place + width] >= common[place + 1])) {
      add(false, 1, 0);
      one += 1;
    } else {
      add(false, 0, 1);
      other += 1;
    }
  }
}
