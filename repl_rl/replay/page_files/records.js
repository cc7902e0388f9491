// The records in the page. A script element holds two lines of JSON: what the list shows, and the
// rest, which is parsed when it is looked at.

const PAGE = JSON.parse(byId("page").textContent);
const ERRORS = new Set(PAGE.errors);

const SUMMARIES = [...document.querySelectorAll("script.trajectory")].map((script, order) => {
  const [head] = script.textContent.split("\n", 1);
  return { ...JSON.parse(head), order, script };
});
const PLACES = new Map(SUMMARIES.map((summary) => [summary.id, summary]));

/** Everything of one trajectory. */
function recordOf(summary) {
  const text = summary.script.textContent;
  return { summary, ...JSON.parse(text.slice(text.indexOf("\n"))) };
}

function largest(name) {
  return SUMMARIES.reduce((most, summary) => Math.max(most, summary[name]), 0);
}

/** Largest of the page, so that a colour means the same from trajectory to trajectory. */
const LIMITS = { advantage: largest("max_advantage"), reward: largest("max_reward") };

/** `error`, `submitted`, `repeated`, `thought` or `ran`: what a line is coloured by. */
function outcomeClass(kind) {
  if (ERRORS.has(kind)) return "error";
  if (kind === "submitted") return "submitted";
  if (kind === "duplicate" || kind === "cut") return "repeated";
  return kind === "comment" || kind === "blank" ? "thought" : "ran";
}

const VERDICTS = {
  proved: ["\u2713", "good"],
  supported: ["\u2248", "good"],
  undecided: ["?", "unsure"],
  refuted: ["\u2717", "bad"],
  wrong: ["\u2717", "bad"],
  malformed: ["!", "bad"],
  none: ["\u2013", "unsure"],
};

function verdictName(kind) {
  return kind === "none" ? "nothing submitted" : kind;
}

function verdictChip(kind) {
  const [mark, tone] = VERDICTS[kind] ?? ["?", "unsure"];
  const glyph = make("span", { "aria-hidden": "true" }, mark + " ");
  return make("span", { class: `chip ${tone}` }, glyph, verdictName(kind));
}

function outcomeChip(kind) {
  return make("span", { class: `outcome ${outcomeClass(kind)}` }, kind);
}

/** A bar for each line: errors and submissions stand taller than the rest. */
function strip(outcomes) {
  const bars = outcomes.map((kind) => make("i", { class: outcomeClass(kind) }));
  return make("span", { class: "strip", "aria-hidden": "true" }, ...bars);
}

function linkTo(id) {
  return "#" + encodeURIComponent(id).replaceAll("%3A", ":");
}

function idFromHash() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return location.hash.slice(1); // a stray percent sign
  }
}
