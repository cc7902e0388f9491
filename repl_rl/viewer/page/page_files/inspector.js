// All that is known about one token.

function fact(name, value, remark) {
  const shown = value instanceof Node ? value : document.createTextNode(value);
  const note = remark ? make("span", { class: "remark" }, remark) : null;
  return make("div", {}, make("dt", {}, name), make("dd", {}, shown, note && " ", note));
}

function sumOver(values, unit) {
  return values.slice(unit.start, unit.stop).reduce((sum, value) => sum + (value ?? 0), 0);
}

function logprobFact(name, values, unit) {
  if (values === null) return fact(name, NONE, "no model was asked");
  const isOne = unit.stop - unit.start === 1;
  const value = isOne ? values[unit.start] : sumOver(values, unit);
  if (value === null) return fact(name, NONE, "not finite");
  const remark = isOne ? `p = ${percent(Math.exp(value))}` : "sum over its tokens";
  return fact(name, value.toFixed(4).replace(/^-(?=[0.]+$)/, ""), remark);
}

function probabilityFacts(record, unit) {
  const facts = [
    unit.isSampled
      ? logprobFact("log p, sampler", record.logprobs, unit)
      : fact("log p, sampler", NONE, "never sampled"),
    logprobFact("log p, trainer", record.trainer, unit),
  ];
  const gap = unit.isSampled ? gapOf(record, unit) : null;
  if (gap !== null) facts.push(fact("gap", signed(gap, 4), "trainer less sampler"));
  return facts;
}

function pushed(advantage) {
  if (advantage === 0) return "not pushed";
  return advantage > 0 ? "\u2191 pushed up" : "\u2193 pushed down";
}

function lineFacts(record, unit) {
  const line = record.lines[unit.line];
  if (line === undefined) return [];
  const facts = [
    fact("line", `${line.index + 1}`, unit.isSampled ? null : "which this answers"),
    fact("outcome", outcomeChip(line.outcome, record.summary.verdict), line.is_truncated ? "output cut" : null),
    fact("line's reward", signed(line.reward)),
  ];
  if (!unit.isSampled) return [fact("advantage", NONE, "injected: never trained"), ...facts];
  const isCopied = line.index < (record.branch?.lines ?? 0);
  const remark = isCopied ? "a copy, trained where it was sampled" : pushed(line.advantage);
  return [
    fact("advantage", signed(line.advantage), remark),
    ...facts,
    fact("line's share", percent(line.share), "of its group's gradient"),
    fact("token's share", percent(shareOf(line, unit)), "of the same"),
  ];
}

/** A line's tokens have one advantage, so they share its part evenly. */
function shareOf(line, unit) {
  return (line.share * (unit.stop - unit.start)) / (line.stop - line.start);
}

function maskText(record, unit) {
  const bits = new Set(record.mask.slice(unit.start, unit.stop));
  return bits.size === 1 ? [...bits][0] : record.mask.slice(unit.start, unit.stop);
}

function drawInspector(record, unit) {
  const ids = record.ids.slice(unit.start, unit.stop);
  const isOne = ids.length === 1;
  const place = isOne ? `${unit.start}` : `${unit.start} to ${unit.stop - 1}`;
  const close = make("button", { type: "button", class: "close", "aria-label": "Close" }, "\u00d7");
  close.addEventListener("click", () => byId("inspector").classList.remove("open"));
  byId("inspector").replaceChildren(
    close,
    make("h2", {}, isOne ? "Token" : counted(ids.length, "token")),
    make("p", { class: "token-text" }, unit.text ? escaped(unit.text) : emptyNote()),
    make(
      "dl",
      { class: "facts-list" },
      fact("token id" + (isOne ? "" : "s"), ids.join(" ")),
      fact("position", place, `of ${record.ids.length}, after ${record.num_prompt} of the prompt`),
      fact("written by", unit.isSampled ? "sampled" : "injected"),
      fact("loss mask", maskText(record, unit)),
      ...probabilityFacts(record, unit),
      ...lineFacts(record, unit),
    ),
  );
  byId("inspector").classList.add("open");
}

function emptyNote() {
  return make("span", { class: "remark" }, "no text yet: it ends inside a character");
}

function emptyInspector() {
  const box = byId("inspector");
  box.classList.remove("open");
  box.replaceChildren(
    make("h2", {}, "Token"),
    make(
      "p",
      { class: "hint" },
      "Point at a token, or tap it, to see its numbers. A click keeps it chosen.",
    ),
  );
}
