// The tree of a group that branches: its edges, indented where one trajectory leaves another.

const DEEPEST = 40;

function valueText(value) {
  return make("b", { class: "number" }, value === null ? "unknown" : signed(value));
}

/** As much of a group as is in the page: by sibling, and who leaves whom after how many lines. */
function treeOf(record, present) {
  const others = present.filter((summary) => summary !== record.summary).map(recordOf);
  const members = [record, ...others].sort((a, b) => a.sibling - b.sibling);
  const stops = new Set();
  for (const one of members)
    for (const { stop } of one.edges.slice(0, -1)) stops.add(`${one.sibling}:${stop}`);
  const leaving = new Map();
  const first = [];
  for (const one of members) {
    const place = one.branch && `${one.branch.sibling}:${one.branch.lines}`;
    if (!place || !stops.has(place)) first.push(one);
    else leaving.set(place, [...(leaving.get(place) ?? []), one]);
  }
  return { current: record, first, leaving, path: pathTo(record, members) };
}

/** The edges on the way from the prompt to a trajectory's end. */
function pathTo(record, members) {
  const path = new Set();
  let end = Infinity;
  for (let one = record; one; ) {
    const before = one.edges.filter((edge) => edge.start < end && edge.stop <= end);
    before.forEach((edge) => path.add(edge));
    end = one.branch?.lines ?? 0;
    const left = one.branch?.sibling;
    one = members.find((other) => other.sibling === left && end > 0 && other.edges[0]?.start < end);
  }
  return path;
}

function leavesText(branch) {
  if (branch.sibling === null) return [`begins after line ${branch.lines} of a solution`];
  const whom = `sibling ${branch.sibling}`;
  const link = PLACES.has(branch.id) ? make("a", { href: linkTo(branch.id) }, whom) : whom;
  return ["branches from ", link, ` after line ${branch.lines}`];
}

function edgeHead(one, at, tree) {
  const { start, stop, advantage } = one.edges[at];
  const isCurrent = at === 0 && one === tree.current;
  const many = stop > start ? `lines ${start + 1} to ${stop}` : "no more lines";
  const lines = stop === start + 1 ? `line ${stop}` : many;
  const isApart = at === 0 && one.branch !== null && tree.first.includes(one);
  const apart = isApart ? [...leavesText(one.branch), ", not in this page"] : [];
  return make(
    "p",
    { class: "edge-head" },
    make("a", { class: "names", href: linkTo(one.summary.id) }, visible(one.summary.id)),
    make("span", {}, at ? `continues, ${lines}` : `sibling ${one.sibling}, ${lines}`),
    make("span", {}, "advantage ", valueText(advantage)),
    isCurrent ? make("span", { class: "remark" }, "this one") : null,
    isApart ? make("span", { class: "remark" }, ...apart) : null,
  );
}

function edgeItem(one, at, tree, depth = 0) {
  if (depth > DEEPEST) return make("li", { class: "state" }, "and deeper than is shown");
  const edge = one.edges[at];
  const { verdict } = one.summary;
  const rows = one.lines.slice(edge.start, edge.stop).map((line) => siblingLine(line, verdict));
  const isLast = at === one.edges.length - 1;
  const state = isLast
    ? ["ends with ", valueText(one.outcome_reward), " ", verdictChip(verdict)]
    : [`value after line ${edge.stop} `, valueText(edge.after)];
  return make(
    "li",
    { class: tree.path.has(edge) ? "on-path" : null },
    make("div", { class: "edge" }, edgeHead(one, at, tree), make("ol", {}, ...rows)),
    make("p", { class: "state" }, ...state),
    isLast ? null : make("ul", {}, ...itemsBehind(one, at, tree, depth + 1)),
  );
}

/** Who goes on from the end of an edge: the same one first. */
function itemsBehind(one, at, tree, depth) {
  const others = tree.leaving.get(`${one.sibling}:${one.edges[at].stop}`) ?? [];
  const first = edgeItem(one, at + 1, tree, depth);
  return [first, ...others.map((other) => edgeItem(other, 0, tree, depth))];
}

/** The tree, with the value of each state that somebody leaves, and the advantage of each edge. */
function groupTree(record, present) {
  const tree = treeOf(record, present);
  const root = tree.first.find((one) => one.branch === null)?.edges[0];
  const items = tree.first
    .filter((one) => one.edges.length > 0)
    .map((one) => edgeItem(one, 0, tree));
  const box = { class: "scroller tree", tabindex: "0", role: "region", "aria-label": "Tree" };
  return make(
    "div",
    box,
    root && make("p", { class: "state" }, "value of the prompt ", valueText(root.before)),
    make("ul", {}, ...items),
  );
}
