// Fields of forms: an input with its label.

import { el } from "./dom.js";

/** An input below its label. */
export function field(title, input) {
  return el("div", { class: "field" }, el("label", { for: input.id }, title), input);
}

/** A list to choose from; options are pairs of a value and its text. */
export function choice(id, options) {
  return el("select", { id }, options.map(([value, text]) => el("option", { value }, text)));
}
