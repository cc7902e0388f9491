// The group of a trajectory, side by side: as much of it as is in the page.

function siblingLine(line, verdict) {
  const kind = outcomeClass(line.outcome, verdict);
  const title = `${line.outcome} ${signed(line.reward, 2)}`;
  return make(
    "li",
    { class: kind },
    make("code", {}, visible(sourceOf(line))),
    make("span", { class: "what" }, title),
  );
}

function siblingColumn(summary, currentId) {
  const { lines } = recordOf(summary);
  const rows = lines.map((line) => siblingLine(line, summary.verdict));
  const isCurrent = summary.id === currentId;
  return make(
    "a",
    { class: "sibling", href: linkTo(summary.id), "aria-current": isCurrent ? "true" : null },
    make(
      "span",
      { class: "sibling-head" },
      make("span", { class: "names" }, visible(summary.id)),
      make("span", { class: "total number" }, signed(summary.total, 2)),
      verdictChip(summary.verdict),
      isCurrent ? make("span", { class: "remark" }, "this one") : null,
    ),
    make("ol", { start: "0" }, ...rows),
  );
}

function siblingCount(record, present) {
  const missing = record.siblings.length - present.length;
  if (record.siblings.length === 1) return "It has no siblings in its file.";
  if (missing === 0) return `All ${present.length} of its group are in this page.`;
  const whole = `${present.length} of its group of ${record.siblings.length}`;
  return `${whole} are in this page; ${missing} ${missing === 1 ? "is" : "are"} not.`;
}

function groupColumns(record, present) {
  const columns = present.map((summary) => siblingColumn(summary, record.summary.id));
  const box = { class: "scroller columns", tabindex: "0", role: "region" };
  return make("div", { ...box, "aria-label": "Siblings" }, ...columns);
}

const TREE_HINT =
  "The value of a state is the mean outcome of what follows it. The advantage of lines is the " +
  "value after them less that of the others from the state before them.";

function drawSiblings(record) {
  const present = record.siblings.map((id) => PLACES.get(id)).filter((found) => found);
  const group = record.edges.length ? groupTree(record, present) : groupColumns(record, present);
  byId("siblings").replaceChildren(
    make("p", { class: "hint" }, siblingCount(record, present)),
    record.edges.length ? make("p", { class: "hint" }, TREE_HINT) : "",
    group,
  );
}
