// The list of trajectories: search, filters, order. Does not know what a trajectory looks like.

const SELECTS = {
  outcome: (summary) => summary.outcomes,
  verdict: (summary) => [summary.verdict],
  stop: (summary) => [summary.stop],
  family: (summary) => [summary.family],
};
const ANY_ERROR = "any error";
const haystacks = new Map();
let shown = SUMMARIES;
let shownLinks = new Map();

/** The text of a trajectory that a search reads: ids, statement, lines and outputs. */
function haystack(summary) {
  if (!haystacks.has(summary.id)) {
    const record = recordOf(summary);
    const lines = record.lines.flatMap((line) => [line.source, line.observation]);
    const parts = [summary.id, summary.problem, summary.statement, ...lines];
    haystacks.set(summary.id, parts.join("\n").toLowerCase());
  }
  return haystacks.get(summary.id);
}

function valuesOf(name, summary) {
  const values = SELECTS[name](summary).filter((value) => value !== null);
  const failed = name === "outcome" && values.some((kind) => PAGE.tones[kind] === "error");
  return new Set(failed ? [...values, ANY_ERROR] : values);
}

function fillSelect(name) {
  const counts = new Map();
  for (const summary of SUMMARIES)
    for (const value of valuesOf(name, summary)) counts.set(value, (counts.get(value) ?? 0) + 1);
  const select = byId(`filter-${name}`);
  select.append(make("option", { value: "" }, "any"));
  for (const [value, count] of [...counts].sort((a, b) => b[1] - a[1])) {
    const label = name === "verdict" ? verdictName(value) : value;
    select.append(make("option", { value }, visible(`${label} (${count})`)));
  }
  select.closest("label").hidden = counts.size === 0;
}

function matches(summary, query) {
  for (const name of Object.keys(SELECTS)) {
    const chosen = byId(`filter-${name}`).value;
    if (chosen && !valuesOf(name, summary).has(chosen)) return false;
  }
  return !query || haystack(summary).includes(query);
}

function inOrder(summaries) {
  const sorts = { best: ["total", -1], worst: ["total", 1], gradient: ["mass", -1] };
  const [name, sign] = sorts[byId("sort").value] ?? ["order", 1];
  return summaries.toSorted((a, b) => sign * (a[name] - b[name]) || a.order - b.order);
}

function listItem(summary) {
  const link = make(
    "a",
    { href: linkTo(summary.id), tabindex: "-1" },
    make("span", { class: "statement" }, visible(summary.statement)),
    make("span", { class: "total number" }, signed(summary.total, 2)),
    make(
      "span",
      { class: "facts" },
      verdictChip(summary.verdict),
      make("span", { class: "stop" }, summary.stop),
      strip(summary),
    ),
    make(
      "span",
      { class: "names" },
      visible([summary.id, summary.family].filter((name) => name !== null).join("  ")),
    ),
  );
  shownLinks.set(summary.id, link);
  return make("li", {}, link);
}

/** Show the trajectories that search and filters leave, and say how many. */
function drawList(currentId) {
  const query = byId("search").value.trim().toLowerCase();
  shown = inOrder(SUMMARIES.filter((summary) => matches(summary, query)));
  shownLinks = new Map();
  byId("list").replaceChildren(...shown.map(listItem));
  byId("count").textContent =
    `${shown.length.toLocaleString("en")} of ${SUMMARIES.length.toLocaleString("en")}`;
  byId("clear").hidden = shown.length === SUMMARIES.length;
  markCurrent(currentId);
}

/** The first with an advantage that is not 0, so that a page opens on a signal. */
function firstWithSignal(summaries) {
  return summaries.find((summary) => summary.max_advantage > 0) ?? summaries[0];
}

/** One link of the list is in the order of Tab: the current one, or else the first. */
function markCurrent(id) {
  for (const link of byId("list").querySelectorAll("a")) {
    link.removeAttribute("aria-current");
    link.tabIndex = -1;
  }
  const current = shownLinks.get(id);
  current?.setAttribute("aria-current", "true");
  const reachable = current ?? byId("list").querySelector("a");
  if (reachable) reachable.tabIndex = 0;
  current?.scrollIntoView({ block: "nearest" });
}

/** The trajectory `step` places after this one among those shown; the first where it is not. */
function neighbour(id, step) {
  const at = shown.findIndex((summary) => summary.id === id);
  return at < 0 ? shown[0] : shown[at + step];
}

function clearFilters() {
  byId("search").value = "";
  for (const name of Object.keys(SELECTS)) byId(`filter-${name}`).value = "";
}
