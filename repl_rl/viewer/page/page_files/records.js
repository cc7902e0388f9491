// The records in the page. A script element holds two lines of JSON: what the list shows, and the
// rest, which is parsed when it is looked at.

const PAGE = JSON.parse(byId("page").textContent);

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

/** Three quarters of the trajectories stay within it, so that no single one rules the colours. */
function usual(name) {
  const found = SUMMARIES.map((summary) => summary[name]).filter((value) => value > 0);
  return found.sort((a, b) => a - b)[Math.floor(0.75 * (found.length - 1))] ?? 0;
}

/** Limits of the whole page, so that a colour means the same in each trajectory. */
const LIMITS = { advantage: usual("max_advantage"), reward: usual("max_reward") };

/** The class that colours a line. The verdict on the whole colours a submission. */
function outcomeClass(kind, verdict) {
  const tone = PAGE.tones[kind] ?? "ran";
  return tone === "submitted" ? `submitted is-${toneOf(verdict)}` : tone;
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

function toneOf(verdict) {
  return (VERDICTS[verdict] ?? VERDICTS.none)[1];
}

/** In the words of a person: right or wrong, and how that is known. */
function verdictName(kind) {
  return PAGE.verdicts[kind] ?? kind;
}

function verdictChip(kind) {
  const [mark, tone] = VERDICTS[kind] ?? ["?", "unsure"];
  const glyph = make("span", { "aria-hidden": "true" }, mark + " ");
  return make("span", { class: `chip ${tone}` }, glyph, verdictName(kind));
}

function outcomeChip(kind, verdict) {
  return make("span", { class: `outcome ${outcomeClass(kind, verdict)}` }, kind);
}

/** A bar for each line: errors and submissions stand taller than the rest. */
function strip({ outcomes, verdict }) {
  const bars = outcomes.map((kind) => make("i", { class: outcomeClass(kind, verdict) }));
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
