// The ledger: the rewards line by line, and the verdict on the whole.

const COLUMNS = [
  ["line", "number"], ["source", ""], ["outcome", ""], ["reward", "number"],
  ["advantage", "number"], ["tokens", "number"], ["share", "number"],
  ["wall ms", "number"], ["cpu ms", "number"],
];

function ledgerRow(line, verdict, numCopied) {
  const number = (text) => make("td", { class: "number" }, text);
  const copied = line.index < numCopied ? " copied" : "";
  const label = `Line ${line.index + 1}: show in the transcript`;
  const jump = make(
    "button",
    { type: "button", "data-line": line.index, "aria-label": label },
    `${line.index + 1}`,
  );
  const bar = make("span", { class: "bar-of-share", "aria-hidden": "true" });
  bar.style.setProperty("--share", line.share.toFixed(4));
  return make(
    "tr",
    { class: `${outcomeClass(line.outcome, verdict)}${copied}`, "data-line": line.index },
    make("td", { class: "number" }, jump),
    make("td", { class: "source" }, make("code", {}, visible(sourceOf(line)))),
    make("td", {}, outcomeChip(line.outcome, verdict)),
    make("td", { class: "number" }, rewardText(line)),
    number(signed(line.advantage)),
    number(`${line.stop - line.start}`),
    make("td", { class: "number share" }, bar, percent(line.share)),
    number(line.wall_ms.toFixed(1)),
    number(line.cpu_ms.toFixed(1)),
  );
}

function ledgerTable(record) {
  const head = COLUMNS.map(([name, kind]) => make("th", { scope: "col", class: kind }, name));
  const numCopied = record.branch?.lines ?? 0;
  const rows = record.lines.map((line) => ledgerRow(line, record.summary.verdict, numCopied));
  const table = make(
    "table",
    {},
    make("thead", {}, make("tr", {}, ...head)),
    make("tbody", {}, ...rows),
  );
  const box = { class: "scroller", tabindex: "0", role: "region", "aria-label": "Lines" };
  return make("div", box, table);
}

function card(title, facts) {
  return make("section", { class: "card" }, make("h3", {}, title), make("dl", {}, ...facts));
}

function code(text) {
  return make("code", { class: "block" }, visible(text));
}

function rewardCard(record) {
  const { summary } = record;
  const outcome = record.outcome_reward;
  return card("Reward", [
    fact("total", signed(summary.total), null),
    fact("outcome", signed(outcome), outcome === null ? "not scored" : null),
    ...Object.entries(record.terms).map(([name, value]) => fact(visible(name), signed(value))),
    fact("gradient", percent(record.share), `of its group of ${record.num_siblings}`),
  ]);
}

function verdictCard(record) {
  const { verdict, summary } = record;
  const facts = [fact("verdict", verdictChip(summary.verdict))];
  if (verdict !== null) {
    facts.push(fact("method", visible(verdict.method || NONE), `${verdict.ms.toFixed(1)} ms`));
    if (verdict.evidence) facts.push(fact("evidence", code(verdict.evidence)));
    if (verdict.grader_error !== null)
      facts.push(fact("grader failed", code(verdict.grader_error)));
  }
  facts.push(fact("submission", record.submission === null ? NONE : code(record.submission)));
  facts.push(fact("stopped by", summary.stop));
  return card("Verdict", facts);
}

function originCard(record) {
  const meta = Object.entries(record.meta).map(([name, value]) => fact(visible(name), code(value)));
  return card("Problem and rollout", [
    fact("problem", visible(record.summary.problem)),
    ...meta,
    fact("group", `${record.group}`, `sibling ${record.sibling}`),
    ...(record.branch ? [fact("branch", make("span", {}, ...leavesText(record.branch)))] : []),
    fact("policy version", `${record.policy_version}`),
    fact("seed", `${record.seed}`),
  ]);
}

function drawLedger(record) {
  byId("ledger").replaceChildren(
    ledgerTable(record),
    make("div", { class: "cards" }, rewardCard(record), verdictCard(record), originCard(record)),
  );
}
