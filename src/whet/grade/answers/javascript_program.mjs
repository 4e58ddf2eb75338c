// Call an assertion of promptfoo, as a program of its own: read a request from standard input, and print its result as
// JSON. Standard output is for the result, so what the assertion prints goes to standard error.

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const write = process.stdout.write.bind(process.stdout);
process.stdout.write = process.stderr.write.bind(process.stderr);

function answer(result) {
  write(JSON.stringify(result), () => process.exit(0));
}

/** The place of the last semicolon that ends a statement, and is not in a text. */
function lastSemicolon(code) {
  let quote = "";
  let place = -1;
  for (let index = 0; index < code.length; index += 1) {
    const character = code[index];
    if (quote && character === "\\") index += 1;
    else if (quote) quote = character === quote ? "" : quote;
    else if ("'\"`".includes(character)) quote = character;
    else if (character === ";") place = index;
  }
  return place;
}

/** One line is an expression, perhaps after declarations; several lines are the body of a function. */
function bodyOf(code) {
  if (code.includes("\n")) return code;
  const line = code.trim().replace(/;+\s*$/, "");
  if (!/^(const|let|var)\s/.test(line)) return `return ${line}`;
  const end = lastSemicolon(line) + 1;
  return end && line.slice(end).trim() ? `${line.slice(0, end)} return ${line.slice(end)}` : line;
}

async function load({ code, file, function: name }) {
  if (file === null) return new Function("output", "context", "process", bodyOf(code));
  const module = await import(pathToFileURL(file));
  const exported = module.default ?? module;
  const found = name ? (module[name] ?? exported[name]) : (typeof exported === "function" ? exported : exported.default);
  if (typeof found !== "function") throw new TypeError(`${file} exports no function ${name || "as its default"}`);
  return found;
}

const request = JSON.parse(readFileSync(0, "utf8"));
let assertion;
try {
  assertion = await load(request);
} catch (error) {
  answer({ mistake: String(error) });
}
if (assertion) {
  try {
    const value = await assertion(request.output, request.context, process);
    answer({ value: value === undefined ? null : value });
  } catch (error) {
    answer({ thrown: String(error) });
  }
}
