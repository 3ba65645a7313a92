// @ts-check
// The lattice on a canvas: wrong responses to the right, right ones upwards, and on it one table and the exit law.

/** @typedef {import("./policy.js").Tables} Tables */
/** @typedef {{pos: number, neg: number}} At */
/** @typedef {{tables: Tables, law: Float64Array, table: string, p: number, at: At | null}} Scene */

const MARGIN = { left: 48, right: 14, top: 12, bottom: 38 };

/** Where a cell lies on a canvas of a width. @param {number} width @param {number} most @param {number} pos @param {number} neg */
function place(width, most, pos, neg) {
  const step = (width - MARGIN.left - MARGIN.right) / (most + 0.6);
  return { x: MARGIN.left + (neg + 0.3) * step, y: heightOf(width) - MARGIN.bottom - (pos + 0.3) * step, step };
}

/** @param {number} width */
export const heightOf = (width) => width - MARGIN.left - MARGIN.right + MARGIN.top + MARGIN.bottom;

/** The pass rate that a place of the canvas points at. @param {number} width @param {number} x @param {number} y */
export function rateAt(width, x, y) {
  const neg = Math.max(x - MARGIN.left, 0);
  const pos = Math.max(heightOf(width) - MARGIN.bottom - y, 0);
  return pos + neg > 0 ? pos / (pos + neg) : 0.5;
}

/** The cell, reached by some prompt, that is nearest to a place. @param {Tables} tables @param {number} width @param {number} x @param {number} y @returns {At | null} */
export function cellAt(tables, width, x, y) {
  let best = null;
  let nearest = 26 ** 2;
  forReached(tables, (pos, neg) => {
    const spot = place(width, tables.most, pos, neg);
    const distance = (spot.x - x) ** 2 + (spot.y - y) ** 2;
    if (distance < nearest) {
      nearest = distance;
      best = { pos, neg };
    }
  });
  return best;
}

/** @param {Tables} tables @param {(pos: number, neg: number, at: number) => void} visit */
export function forReached(tables, visit) {
  const side = tables.most + 1;
  for (let at = 0; at < tables.reach.length; at++)
    if (tables.reach[at] > 0) visit(Math.floor(at / side), at % side, at);
}

/** What a table holds at an exit. @param {Tables} tables @param {string} table @param {number} at @returns {number} */
export function entry(tables, table, at) {
  const ratio = (/** @type {number} */ part, /** @type {number} */ whole) => (whole > 0 ? part / whole : 0);
  switch (table) {
    case "keep_pos":
      return tables.keepPos[at];
    case "keep_neg":
      return tables.keepNeg[at];
    case "adv_pos":
      return ratio(tables.gainPos[at], tables.keepPos[at]);
    case "adv_neg":
      return ratio(tables.gainNeg[at], tables.keepNeg[at]);
    default:
      return tables.draws[at];
  }
}

/**
 * Draw the scene.
 * @param {HTMLCanvasElement} canvas
 * @param {Scene} scene
 */
export function drawLattice(canvas, scene) {
  const { tables, law, table, p } = scene;
  const width = canvas.clientWidth;
  const height = heightOf(width);
  const dense = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * dense)) {
    canvas.width = Math.round(width * dense);
    canvas.height = Math.round(height * dense);
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  if (!pen || !width) return;
  const style = getComputedStyle(canvas);
  const colour = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
  const ink = {
    text: colour("--text"),
    soft: colour("--muted"),
    line: colour("--line"),
    going: colour("--text"),
    resolved: colour("--resolved"),
    spent: colour("--spent"),
    paper: colour("--panel"),
  };
  pen.setTransform(dense, 0, 0, dense, 0, 0);
  pen.clearRect(0, 0, width, height);
  const { step } = place(width, tables.most, 0, 0);
  const font = (/** @type {number} */ size) => `${size}px system-ui, sans-serif`;
  axes(pen, width, tables, ink, font);
  ray(pen, width, tables.most, p, ink, font);
  const gap = spacing(tables) * step;
  const largest = Math.max(Math.min(gap * 0.5, 17), 2);
  let highest = 0;
  let peak = 0;
  forReached(tables, (_pos, _neg, at) => {
    if (!tables.draws[at]) {
      highest = Math.max(highest, law[at]);
      peak = Math.max(peak, Math.abs(entry(tables, table, at)));
    }
  });
  const labels = gap >= 12.5;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  forReached(tables, (pos, neg, at) => {
    const { x, y } = place(width, tables.most, pos, neg);
    if (tables.draws[at] > 0)
      return going(pen, x, y, { size: largest, more: tables.draws[at], chance: law[at], ink, labels });
    const value = entry(tables, table, at);
    if (table === "draws") {
      const size = Math.max(largest * 1.05 * Math.sqrt(law[at] / (highest || 1)), Math.min(2.2, largest));
      return marker(pen, x, y, size, tables.resolved[at] > 0, ink);
    }
    box(pen, x, y, Math.min(largest, step / 2), ink.text, 0.06 + (0.34 * Math.abs(value)) / (peak || 1));
    if (labels && gap >= 19) {
      const signed = table.startsWith("adv");
      const text = signed ? value.toFixed(gap > 34 ? 2 : 1).replace("-", "−") : String(Math.round(value * 10) / 10);
      pen.fillStyle = ink.text;
      pen.font = font(Math.min(largest * 0.95, 11));
      pen.fillText(text, x, y + 0.5);
    }
  });
  if (table === "draws" && highest > 0) shares(pen, width, tables, law, largest, ink, font);
  const selected = scene.at;
  if (selected) {
    const { x, y } = place(width, tables.most, selected.pos, selected.neg);
    pen.strokeStyle = ink.text;
    pen.lineWidth = 2;
    pen.strokeRect(x - largest - 3, y - largest - 3, 2 * largest + 6, 2 * largest + 6);
  }
}

/** @typedef {Record<"text" | "soft" | "line" | "going" | "resolved" | "spent" | "paper", string>} Ink */

/** How far apart, in cells, the reached cells are at the least. @param {Tables} tables @returns {number} */
function spacing(tables) {
  const totals = new Set();
  forReached(tables, (pos, neg) => totals.add(pos + neg));
  const sorted = [...totals].sort((left, right) => left - right);
  const between = Math.min(...sorted.slice(1).map((total, i) => total - sorted[i]));
  return Math.min(Math.SQRT2, Math.max(between / Math.SQRT2, 1));
}

/** @param {CanvasRenderingContext2D} pen @param {number} width @param {Tables} tables @param {Ink} ink @param {(size: number) => string} font */
function axes(pen, width, tables, ink, font) {
  const { most } = tables;
  const origin = place(width, most, 0, 0);
  const [up, right] = [place(width, most, most, 0), place(width, most, 0, most)];
  pen.strokeStyle = ink.line;
  pen.lineWidth = 1;
  pen.beginPath();
  pen.moveTo(up.x, up.y);
  pen.lineTo(origin.x, origin.y);
  pen.lineTo(right.x, right.y);
  pen.stroke();
  // Where rounds end: all cells with the same number of responses.
  const ends = new Set();
  forReached(tables, (pos, neg) => ends.add(pos + neg));
  pen.setLineDash([2, 4]);
  const few = ends.size <= 18;
  for (const total of ends) {
    if (!few || !total) continue;
    const [from, to] = [place(width, most, total, 0), place(width, most, 0, total)];
    pen.beginPath();
    pen.moveTo(from.x, from.y);
    pen.lineTo(to.x, to.y);
    pen.stroke();
  }
  pen.setLineDash([]);
  pen.fillStyle = ink.soft;
  pen.font = font(11);
  const every = [1, 2, 4, 8, 16, 32].find((size) => (most / size) * 24 < width) ?? 32;
  for (let tick = 0; tick <= most; tick += every) {
    const below = place(width, most, 0, tick);
    const beside = place(width, most, tick, 0);
    pen.textAlign = "center";
    pen.textBaseline = "top";
    pen.fillText(String(tick), below.x, heightOf(width) - MARGIN.bottom + 6);
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    if (tick) pen.fillText(String(tick), MARGIN.left - 8, beside.y);
  }
  pen.font = font(12);
  pen.fillStyle = ink.text;
  pen.textAlign = "right";
  pen.textBaseline = "bottom";
  pen.fillText("wrong responses →", width - MARGIN.right, heightOf(width) - 2);
  pen.save();
  pen.translate(9, MARGIN.top);
  pen.rotate(-Math.PI / 2);
  pen.textBaseline = "middle";
  pen.fillText("right responses →", 0, 0);
  pen.restore();
}

/** The direction in which a prompt of pass rate p walks. @param {CanvasRenderingContext2D} pen @param {number} width @param {number} most @param {number} p @param {Ink} ink @param {(size: number) => string} font */
function ray(pen, width, most, p, ink, font) {
  const origin = place(width, most, 0, 0);
  const end = place(width, most, p * most, (1 - p) * most);
  pen.strokeStyle = ink.soft;
  pen.setLineDash([6, 4]);
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.moveTo(origin.x, origin.y);
  pen.lineTo(end.x, end.y);
  pen.stroke();
  pen.setLineDash([]);
  pen.fillStyle = ink.soft;
  pen.beginPath();
  pen.arc(end.x, end.y, 4, 0, 7);
  pen.fill();
  pen.font = font(12);
  pen.textAlign = p < 0.25 ? "right" : "left";
  pen.textBaseline = "bottom";
  pen.fillText(`p = ${p < 0.1 ? p.toFixed(3) : p.toFixed(2)}`, end.x + (p < 0.25 ? 6 : 8), end.y - 10);
}

/** @param {CanvasRenderingContext2D} pen @param {number} x @param {number} y @param {{size: number, more: number, chance: number, ink: Ink, labels: boolean}} what */
function going(pen, x, y, { size, more, chance, ink, labels }) {
  const half = Math.max(size * 0.85, 1.6);
  pen.globalAlpha = 0.05 + 0.3 * Math.min(Math.sqrt(chance), 1);
  pen.fillStyle = ink.going;
  pen.fillRect(x - half, y - half, 2 * half, 2 * half);
  pen.globalAlpha = 1;
  if (!labels) return;
  pen.strokeStyle = ink.going;
  pen.lineWidth = 1;
  pen.strokeRect(x - half, y - half, 2 * half, 2 * half);
  pen.fillStyle = ink.text;
  pen.font = `600 ${Math.min(half * 1.5, 12)}px system-ui, sans-serif`;
  pen.fillText(String(more), x, y + 0.5);
}

/** A circle where the rule holds, a diamond where the budget is spent. @param {CanvasRenderingContext2D} pen @param {number} x @param {number} y @param {number} size @param {boolean} resolved @param {Ink} ink */
function marker(pen, x, y, size, resolved, ink) {
  pen.fillStyle = resolved ? ink.resolved : ink.spent;
  pen.beginPath();
  if (resolved) {
    pen.arc(x, y, size, 0, 7);
  } else {
    pen.moveTo(x, y - size * 1.2);
    pen.lineTo(x + size * 1.2, y);
    pen.lineTo(x, y + size * 1.2);
    pen.lineTo(x - size * 1.2, y);
  }
  pen.fill();
}

/** @param {CanvasRenderingContext2D} pen @param {number} x @param {number} y @param {number} half @param {string} colour @param {number} depth */
function box(pen, x, y, half, colour, depth) {
  pen.globalAlpha = depth;
  pen.fillStyle = colour;
  pen.fillRect(x - half, y - half, 2 * half, 2 * half);
  pen.globalAlpha = 1;
}

/** Write the largest chances of the exit law beside their cells. @param {CanvasRenderingContext2D} pen @param {number} width @param {Tables} tables @param {Float64Array} law @param {number} size @param {Ink} ink @param {(size: number) => string} font */
function shares(pen, width, tables, law, size, ink, font) {
  /** @type {{pos: number, neg: number, chance: number}[]} */
  const found = [];
  forReached(tables, (pos, neg, at) => {
    if (!tables.draws[at] && law[at] >= 0.04) found.push({ pos, neg, chance: law[at] });
  });
  found.sort((left, right) => right.chance - left.chance);
  pen.font = `600 ${font(11)}`;
  pen.textAlign = "left";
  pen.textBaseline = "middle";
  /** @type {{left: number, y: number}[]} */
  const written = [];
  for (const { pos, neg, chance } of found.slice(0, 12)) {
    const { x, y } = place(width, tables.most, pos, neg);
    const text = `${Math.round(100 * chance)} %`;
    const left = Math.min(x + size * 1.1 + 3, width - 30);
    // The larger one was written first; what would lie over it is left to the readout.
    if (written.some((other) => Math.abs(other.left - left) < 32 && Math.abs(other.y - y) < 12)) continue;
    written.push({ left, y });
    pen.lineWidth = 3;
    pen.strokeStyle = ink.paper;
    pen.strokeText(text, left, y - size * 0.6);
    pen.fillStyle = ink.text;
    pen.fillText(text, left, y - size * 0.6);
  }
}
