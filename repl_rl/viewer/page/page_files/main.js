// The chosen trajectory and token, and the ways to choose them: addresses, keys, pointers.

let record = null;
let units = [];
let kept = null;

function drawHeading() {
  const { summary } = record;
  const sampled = [...record.mask].filter((bit) => bit === "1").length;
  const injected = record.ids.length - sampled;
  const step = (label, by) => {
    const target = neighbour(summary.id, by);
    const key = by > 0 ? "j" : "k";
    const button = make("button", { type: "button", "aria-keyshortcuts": key }, label);
    button.disabled = target === undefined;
    button.addEventListener("click", () => {
      go(by);
      byId("heading").querySelector(`[aria-keyshortcuts="${key}"]`).focus();
    });
    return button;
  };
  byId("heading").replaceChildren(
    make(
      "div",
      { class: "title-line" },
      make("a", { class: "permalink", href: linkTo(summary.id) }, visible(summary.id)),
      make("span", { class: "steps" }, step("\u2190 Previous", -1), step("Next \u2192", 1)),
    ),
    make("h2", { class: "statement" }, visible(summary.statement)),
    make(
      "p",
      { class: "facts" },
      verdictChip(summary.verdict),
      make("span", { class: "number total" }, signed(summary.total, 2), " in all"),
      record.branch && make("span", {}, ...leavesText(record.branch)),
      make("span", {}, "stopped by ", make("b", {}, summary.stop)),
      make("span", {}, counted(record.lines.length, "line")),
      make("span", {}, `${counted(sampled, "token")} sampled, ${injected} injected`),
      make("span", {}, `${percent(record.share)} of its group's gradient`),
    ),
  );
}

function show(summary) {
  record = recordOf(summary);
  kept = null;
  units = drawTranscript(record);
  applyMeasure(record, units);
  emptyInspector();
  drawHeading();
  drawLedger(record);
  drawSiblings(record);
  byId("trajectory").hidden = false;
  byId("notice").hidden = true;
  markCurrent(summary.id);
  byId("reader").scrollTop = 0;
}

function say(text) {
  byId("trajectory").hidden = true;
  byId("notice").hidden = false;
  byId("notice").replaceChildren(visible(text));
}

/** Open what the address names, or the first. Anchors of the page itself are left alone. */
function openFromHash() {
  const id = idFromHash();
  if (PLACES.has(id)) {
    if (record?.summary.id !== id || byId("trajectory").hidden) show(PLACES.get(id));
  } else if (SUMMARIES.length === 0) say("There are no trajectories in this page.");
  else if (!id) show(firstWithSignal(shown) ?? SUMMARIES[0]);
  else if (byId(id) === null) say(`${id} is not among the trajectories of this page.`);
  else if (record === null) show(SUMMARIES[0]);
}

function go(step) {
  const target = neighbour(record?.summary.id, step);
  if (!target) return;
  const inList = byId("list").contains(document.activeElement);
  location.replace(linkTo(target.id));
  show(target);
  if (inList) shownLinks.get(target.id).focus();
}

function elementOf(number) {
  return byId("transcript").querySelector(`.token[role][data-unit="${number}"]`);
}

function unitAt(target) {
  const element = target instanceof Element ? target.closest("#transcript .token") : null;
  return element ? Number(element.dataset.unit) : null;
}

function inspect(number) {
  for (const element of byId("transcript").querySelectorAll(".inspected"))
    element.classList.remove("inspected");
  const pieces = byId("transcript").querySelectorAll(`.token[data-unit="${number}"]`);
  for (const element of pieces) element.classList.add("inspected");
  drawInspector(record, units[number]);
}

function keep(number) {
  elementOf(kept)?.setAttribute("aria-pressed", "false");
  kept = number;
  if (number === null) return;
  elementOf(number).setAttribute("aria-pressed", "true");
  inspect(number);
  elementOf(number).scrollIntoView({ block: "nearest" }); // the panel below may have covered it
}

/** Move the one token that Tab reaches, and the focus with it. */
function focusToken(number) {
  const target = elementOf(number);
  if (!target) return;
  for (const element of byId("transcript").querySelectorAll('.token[tabindex="0"]'))
    element.tabIndex = -1;
  target.tabIndex = 0;
  target.focus();
}

function focusLine(index) {
  focusToken(units.findIndex((unit) => unit.isSampled && unit.line === index));
}

function letGo() {
  keep(null);
  for (const element of byId("transcript").querySelectorAll(".inspected"))
    element.classList.remove("inspected");
  emptyInspector();
}

const KEYS = {
  j: () => go(1),
  k: () => go(-1),
  "/": () => byId("search").focus(),
  t: () => focusToken(units.findIndex((unit) => unit.isSampled)),
  l: () => byId("ledger-title").focus(),
  s: () => byId("siblings-title").focus(),
  "?": () => byId("help").showModal(),
  Escape: letGo,
};

function arrow(event) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  const isVertical = event.key === "ArrowDown" || event.key === "ArrowUp";
  const number = unitAt(event.target);
  if (!step || event.target.closest(".scroller")) return false;
  if (isVertical) {
    if (!byId("browser").contains(event.target)) return false;
    go(step);
  } else if (number !== null) focusToken(number + step);
  else go(step);
  return true;
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open) return;
  const isTyping = event.target.closest("input, select, textarea");
  if (isTyping) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  // Keys that scroll act on what has the focus, and the body itself does not scroll.
  if (document.activeElement === document.body) byId("reader").focus({ preventScroll: true });
  const number = unitAt(event.target);
  if (number !== null && (event.key === "Enter" || event.key === " ")) {
    keep(number);
    event.preventDefault();
  } else if (KEYS[event.key]) {
    KEYS[event.key]();
    event.preventDefault();
  } else if (arrow(event)) event.preventDefault();
}

function listen() {
  const transcript = byId("transcript");
  transcript.addEventListener("pointerover", (event) => {
    const number = unitAt(event.target);
    if (number !== null && event.pointerType !== "touch") inspect(number);
  });
  transcript.addEventListener("pointerleave", (event) => {
    if (kept !== null && event.pointerType !== "touch") inspect(kept);
  });
  transcript.addEventListener("focusin", (event) => {
    const number = unitAt(event.target);
    if (number !== null) inspect(number);
  });
  transcript.addEventListener("click", (event) => {
    const number = unitAt(event.target);
    if (number !== null) keep(number);
  });
  byId("ledger").addEventListener("click", (event) => {
    const button = event.target.closest("button[data-line]");
    if (button) focusLine(Number(button.dataset.line));
  });
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("filters").addEventListener("input", redrawList);
  byId("clear").addEventListener("click", () => {
    clearFilters();
    redrawList();
    byId("search").focus();
  });
  byId("help-open").addEventListener("click", () => byId("help").showModal());
  addEventListener("keydown", onKey);
  addEventListener("hashchange", openFromHash);
}

function redrawList() {
  drawList(record?.summary.id);
  if (record) drawHeading();
}

function start() {
  byId("notes").append(...PAGE.notes.map((note) => make("li", {}, visible(note))));
  Object.keys(SELECTS).forEach(fillSelect);
  drawMeasures(() => applyMeasure(record, units));
  listen();
  drawList(null);
  openFromHash();
}

start();
