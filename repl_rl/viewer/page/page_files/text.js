// Text and elements. All text of a trajectory enters the page here, as text nodes.

// Controls but tab and newline, marks that reorder or hide text, lone surrogates, and characters
// that look like a space or like nothing.
const UNSEEN =
  /(?![\t\n ])[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}\p{Zs}\u115f\u1160\u3164\uffa0\u2800]/gu;
const NEWLINE = "\u21b5";
const NONE = "\u2013";

/** An element. Attribute names are this page's own; children are nodes, or text shown as it is. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined)
      element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function byId(id) {
  return document.getElementById(id);
}

function codePoint(character) {
  return "U+" + character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
}

/** `text` as nodes, with invisible characters spelled out. */
function visible(text) {
  const fragment = document.createDocumentFragment();
  let end = 0;
  for (const match of text.matchAll(UNSEEN)) {
    fragment.append(text.slice(end, match.index));
    const shown = `\u2039${codePoint(match[0])}\u203a`;
    fragment.append(make("span", { class: "unseen" }, shown));
    end = match.index + match[0].length;
  }
  fragment.append(text.slice(end));
  return fragment;
}

/** `text` on one line: newlines, tabs and spaces spelled out as well. */
function escaped(text) {
  const fragment = document.createDocumentFragment();
  for (const part of text.split(/([\n\t ])/)) {
    const mark = { "\n": NEWLINE, "\t": "\u21e5", " ": "\u2423" }[part];
    fragment.append(mark ? make("span", { class: "unseen" }, mark) : visible(part));
  }
  return fragment;
}

/** The same as a plain string, for names that are read aloud. */
function spoken(text) {
  const whole = text.replaceAll("\n", NEWLINE).replace(UNSEEN, (found) => codePoint(found));
  return whole.trim() ? whole : "space";
}

function signed(number, digits = 3) {
  if (number === null || number === undefined) return NONE;
  return (number >= 0 ? "+" : "") + (number === 0 ? 0 : number).toFixed(digits);
}

function percent(share) {
  return (100 * share).toFixed(1) + "%";
}

function counted(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

/** The source in a sampled line, as one that reads it would write it. */
function sourceOf(line) {
  return line.source.replace(/^ /, "").replace(/\n$/, "");
}
