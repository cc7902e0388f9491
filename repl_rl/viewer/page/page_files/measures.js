// The measure that colours the background of sampled tokens, and its legend.

const SURPRISE = 6;

function meanOver(values, unit) {
  const part = values.slice(unit.start, unit.stop).filter((value) => value !== null);
  return part.length ? part.reduce((sum, value) => sum + value, 0) / part.length : null;
}

/** Trainer's log-probability less the sampler's; null where no model was asked. */
function gapOf(record, unit) {
  if (record.trainer === null) return null;
  const gaps = record.trainer.map((value, at) =>
    value === null || record.logprobs[at] === null ? null : value - record.logprobs[at],
  );
  return meanOver(gaps, unit);
}

// `heat` is from -1 to 1; its sign chooses the colour.
const MEASURES = {
  advantage: {
    label: "advantage",
    value: (record, unit) => record.lines[unit.line]?.advantage ?? null,
    limit: () => LIMITS.advantage,
    ends: (limit) => [
      `${signed(-limit, 2)} or less: pushed down`,
      `${signed(limit, 2)} or more: pushed up`,
    ],
  },
  logprob: {
    label: "log-probability",
    value: (record, unit) => meanOver(record.logprobs, unit),
    limit: () => SURPRISE,
    ends: () => [`${-SURPRISE} nats or less: a surprise`, "0: certain"],
    isOneSided: true,
  },
  reward: {
    label: "reward of line",
    value: (record, unit) => record.lines[unit.line]?.reward ?? null,
    limit: () => LIMITS.reward,
    ends: (limit) => [`${signed(-limit, 2)} or less`, `${signed(limit, 2)} or more`],
  },
};
let measure = "advantage";

function drawMeasures(onChange) {
  for (const [name, { label }] of Object.entries(MEASURES)) {
    const input = make("input", { type: "radio", name: "measure", value: name });
    input.checked = name === measure;
    input.addEventListener("change", () => {
      measure = name;
      onChange();
    });
    byId("measures").append(make("label", {}, input, label));
  }
}

/** Colour the transcript that is drawn. */
function applyMeasure(record, units) {
  const { value, limit } = MEASURES[measure];
  for (const element of byId("transcript").querySelectorAll(".token.sampled")) {
    const found = value(record, units[element.dataset.unit]);
    const heat = found === null || !limit() ? 0 : Math.max(-1, Math.min(1, found / limit()));
    element.style.setProperty("--heat", Math.abs(heat).toFixed(3));
    element.classList.toggle("up", heat > 0);
    element.classList.toggle("down", heat < 0);
  }
  byId("transcript").dataset.measure = measure;
  drawLegend(record.branch !== null);
}

function legendKey(mark, kind, rest) {
  const sample = make("span", { class: `token ${kind}` }, kind);
  return make("span", {}, make("b", {}, mark), " ", sample, rest);
}

function drawLegend(hasCopies) {
  const { ends, limit, isOneSided } = MEASURES[measure];
  const parts = [
    legendKey("+", "sampled", ", trained"),
    hasCopies && legendKey("=", "sampled", ", a copy, trained in the other"),
    legendKey(".", "injected", ", never trained"),
  ];
  if (limit()) {
    const [low, high] = ends(limit());
    const kind = isOneSided ? "ramp one-sided" : "ramp";
    const ramp = make("span", { class: kind, role: "img", "aria-label": "to" });
    parts.push(make("span", { class: "scale" }, low, ramp, high));
  } else parts.push(make("span", { class: "scale" }, "all are 0 in this page"));
  byId("legend").replaceChildren(...parts.filter(Boolean));
}
