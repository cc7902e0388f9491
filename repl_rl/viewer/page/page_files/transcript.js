// The token view: rows of text as an interpreter shows them, each token an element of its own.

const LONG_PROMPT = 24;

/** What is shown as one piece: a token, or a whole span where its tokens have no texts. */
function unitsOf(record) {
  const units = [];
  for (const [number, [start, stop, isSampled, line]] of record.spans.entries()) {
    if (record.texts === null) {
      units.push({ start, stop, line, isSampled, text: record.span_texts[number] });
      continue;
    }
    for (let at = start; at < stop; at++)
      units.push({ start: at, stop: at + 1, line, isSampled, text: record.texts[at] });
  }
  return units;
}

/** Cut prompt and units at their newlines: [{pieces, line, isPrompt}]. */
function rowsOf(record, units) {
  const rows = [{ pieces: [], isPrompt: true }];
  const seen = new Set();
  const put = (text, unit) => {
    const parts = text.split("\n");
    parts.forEach((part, at) => {
      const endsRow = at < parts.length - 1;
      if (part || endsRow || parts.length === 1)
        addPiece(rows.at(-1), { text: part, endsRow, unit, isFirst: at === 0 }, seen);
      if (endsRow) rows.push({ pieces: [], isPrompt: unit === null });
    });
  };
  put(record.prompt, null);
  for (const unit of units) put(unit.text, unit);
  return rows.filter((row) => row.pieces.length > 0);
}

/** `seen` holds the lines that have their first row. */
function addPiece(row, piece, seen) {
  const { unit } = piece;
  row.pieces.push(piece);
  if (unit) row.isPrompt = false;
  if (!unit?.isSampled) return;
  row.isSampled = true;
  if (unit.line >= 0 && !seen.has(unit.line)) row.line = unit.line;
  seen.add(unit.line);
}

function pieceElement(piece, number) {
  if (piece.unit === null) return make("span", { class: "prompt" }, visible(piece.text));
  const { unit } = piece;
  const kind = unit.isSampled ? "sampled" : "injected";
  const attributes = { class: `token ${kind}`, "data-unit": number };
  const element = make("span", attributes, visible(piece.text));
  if (piece.endsRow) element.append(make("span", { class: "newline" }, NEWLINE));
  else if (!piece.text) element.append(make("span", { class: "newline" }, "\u25cc"));
  if (piece.isFirst) {
    element.setAttribute("role", "button");
    element.setAttribute("aria-pressed", "false");
    element.setAttribute("aria-label", `${kind}: ${spoken(unit.text)}`);
    element.tabIndex = -1;
  }
  return element;
}

function rowElement(row, record, numbers) {
  const isCopied = isCopy(row, record);
  const mark = row.isPrompt ? "" : row.isSampled ? (isCopied ? "=" : "+") : ".";
  const line = row.line === undefined ? null : record.lines[row.line];
  const kind = row.isPrompt ? "of-prompt" : row.isSampled ? "of-model" : "of-kernel";
  const { verdict } = record.summary;
  const tone = line ? outcomeClass(line.outcome, verdict) : "";
  const number = line ? `${line.index + 1}` : "";
  const pieces = row.pieces.map((piece) => pieceElement(piece, numbers.get(piece.unit)));
  return make(
    "div",
    { class: `row ${kind} ${tone}${isCopied ? " copied" : ""}`, "data-line": row.line },
    make("span", { class: "gutter", "aria-hidden": "true" }, `${number} ${mark}`),
    make("span", { class: "text" }, ...pieces),
    line && make("span", { class: "annotation" }, outcomeChip(line.outcome, verdict), rewardText(line)),
  );
}

/** Whether all of a row belongs to lines that are another one's. */
function isCopy(row, record) {
  const num = record.branch?.lines ?? 0;
  return !row.isPrompt && row.pieces.every(({ unit }) => unit === null || unit.line < num);
}

function rewardText(line) {
  const tone = line.reward < 0 ? "minus" : line.reward > 0 ? "plus" : "zero";
  return make("span", { class: `number ${tone}` }, signed(line.reward, 2));
}

/** Draw the transcript; returns its units, whose places are the `data-unit` of elements. */
function drawTranscript(record) {
  const units = unitsOf(record);
  const numbers = new Map(units.map((unit, number) => [unit, number]));
  const rows = rowsOf(record, units);
  const elements = rows.map((row) => rowElement(row, record, numbers));
  const box = byId("transcript");
  box.replaceChildren(...foldPrompt(rows, elements));
  const first = box.querySelector(".token.sampled[role]") ?? box.querySelector(".token[role]");
  if (first) first.tabIndex = 0;
  return units;
}

/** A long prompt shows its last rows; a button brings the others. */
function foldPrompt(rows, elements) {
  const length = rows.filter((row) => row.isPrompt).length;
  if (length <= LONG_PROMPT) return elements;
  const folded = elements.slice(0, length - LONG_PROMPT / 2);
  for (const element of folded) element.hidden = true;
  const button = make(
    "button",
    { type: "button", class: "unfold" },
    `Show ${counted(folded.length, "more row")} of the prompt`,
  );
  button.addEventListener("click", () => {
    for (const element of folded) element.hidden = false;
    button.remove();
  });
  return [button, ...elements];
}
