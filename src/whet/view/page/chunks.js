// A long list of which only the part near the screen is in the page. Parts that are far away keep their height.

const TOGETHER = 25;
const GUESSED_PX = 44;
const NEAR = "1500px 0px";

/** A list of any length; `draw` makes the element of an item. */
export class Chunks {
  constructor(place, draw) {
    this.place = place;
    this.draw = draw;
    this.chunks = [];
    this.owners = new Map();
    this.watcher = new IntersectionObserver((entries) => entries.forEach((entry) => this.moved(entry)), { rootMargin: NEAR });
  }

  /** Show these items instead. */
  show(items) {
    this.watcher.disconnect();
    this.chunks = [];
    this.owners.clear();
    this.place.replaceChildren();
    this.extend(items);
  }

  /** Show more items after those that are there. */
  extend(items) {
    let rest = items;
    const last = this.chunks.at(-1);
    if (last && last.items.length < TOGETHER) {
      const taken = rest.slice(0, TOGETHER - last.items.length);
      rest = rest.slice(taken.length);
      for (const item of taken) this.owners.set(item, last);
      last.items.push(...taken);
      if (last.filled) last.element.append(...taken.map(this.draw));
      else this.reserve(last);
    }
    for (let from = 0; from < rest.length; from += TOGETHER) this.append(rest.slice(from, from + TOGETHER));
  }

  append(items) {
    const element = document.createElement("div");
    element.className = "chunk";
    element.setAttribute("role", "presentation");
    const chunk = { items: [...items], element, filled: false };
    for (const item of items) this.owners.set(item, chunk);
    element.chunk = chunk;
    this.chunks.push(chunk);
    this.place.append(element);
    this.reserve(chunk);
    if (this.chunks.length === 1) this.fill(chunk);
    this.watcher.observe(element);
  }

  /** Make sure that an item is in the page. */
  reach(item) {
    const chunk = this.owners.get(item);
    if (chunk) this.fill(chunk);
    return Boolean(chunk);
  }

  moved({ target, isIntersecting }) {
    if (isIntersecting) this.fill(target.chunk);
    else this.clear(target.chunk);
  }

  fill(chunk) {
    if (chunk.filled) return;
    chunk.filled = true;
    chunk.element.style.height = "";
    chunk.element.replaceChildren(...chunk.items.map(this.draw));
  }

  clear(chunk) {
    // What has the focus stays, however far away it is.
    if (!chunk.filled || chunk.element.contains(document.activeElement)) return;
    chunk.element.style.height = `${chunk.element.getBoundingClientRect().height}px`;
    chunk.filled = false;
    chunk.element.replaceChildren();
  }

  reserve(chunk) {
    if (!chunk.filled) chunk.element.style.height = `${chunk.items.length * GUESSED_PX}px`;
  }
}
