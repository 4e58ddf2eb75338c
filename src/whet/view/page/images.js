// Pictures in what tools returned: blocks of JSON with base64, as agents print them.

import { el, said } from "./dom.js";
import { size } from "./words.js";

const TYPES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const DATA_ADDRESS = /^data:(image\/(?:png|jpeg|gif|webp));base64,([A-Za-z0-9+/=\s]+)$/;
const BASE64 = /^[A-Za-z0-9+/=\s]+$/;
const MOST = 16;

/** A text as pieces: texts, and pictures with their type and base64; a text without pictures is one piece. */
export function pieces(text) {
  if (!text.includes("image")) return [{ text }];
  const images = [];
  let words = [];
  const flush = () => {
    if (words.length) images.push({ text: words.join("\n") });
    words = [];
  };
  for (const line of text.split("\n")) {
    const pictures = images.length < MOST ? picturesIn(line) : [];
    if (pictures.length) {
      flush();
      images.push(...pictures);
    } else words.push(line);
  }
  flush();
  return images;
}

/** The pictures of a line that is a block of JSON, or a list of them. */
function picturesIn(line) {
  if (!/^\s*[[{]/.test(line)) return [];
  try {
    return [JSON.parse(line)].flat().map(pictureOf).filter(Boolean);
  } catch {
    return [];
  }
}

/** The picture of a block: Anthropic's, that of the Model Context Protocol, or OpenAI's. */
function pictureOf(item) {
  if (typeof item !== "object" || item === null) return null;
  const source = typeof item.source === "object" && item.source !== null ? item.source : item;
  const address = DATA_ADDRESS.exec(typeof item.image_url === "string" ? item.image_url : item.image_url?.url ?? "");
  const [type, data] = address ? [address[1], address[2]] : [source.media_type ?? source.mimeType, source.data];
  return TYPES.includes(type) && typeof data === "string" && BASE64.test(data) ? { type, data } : null;
}

/** A picture with its type and size. */
export function pictureElement({ type, data }, label) {
  const bytes = Math.floor((data.replace(/[\s=]/g, "").length * 3) / 4);
  const shown = el("img", { src: `data:${type};base64,${data.replace(/\s/g, "")}`, alt: label, class: "picture" });
  const caption = el("figcaption", { class: "quiet small-print" }, said(`${type.slice("image/".length).toUpperCase()}, ${size(bytes)}`));
  shown.addEventListener("load", () => (caption.textContent += `, ${shown.naturalWidth} × ${shown.naturalHeight} pixels`));
  shown.addEventListener("error", () => shown.replaceWith(el("p", { class: "quiet" }, "This picture cannot be shown.")));
  return el("figure", { class: "picture-part" }, shown, caption);
}

/** The type of a picture by the name of its file; null if it is none that is shown. */
export function pictureType(name) {
  const ending = /\.(png|jpe?g|gif|webp)$/i.exec(name)?.[1].toLowerCase();
  return ending ? `image/${ending.replace("jpg", "jpeg")}` : null;
}

/** The bytes of a file as base64. */
export async function base64Of(blob) {
  const bytes = new Uint8Array(await blob.arrayBuffer());
  let text = "";
  // As many arguments as every engine takes.
  for (let place = 0; place < bytes.length; place += 8192) text += String.fromCharCode(...bytes.subarray(place, place + 8192));
  return btoa(text);
}
