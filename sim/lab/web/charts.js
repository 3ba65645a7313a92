// @ts-check
// Small line charts as SVG text. The axis of pass rates is even in log-odds: many prompts are hard, and their ends matter.

/** @typedef {{values: ArrayLike<number>, kind: string, at?: ArrayLike<number>}} Line a line and its CSS class */
/** @typedef {{x: number, y: number, kind: string, label: string}} Point */

const SIZE = { width: 360, height: 220, left: 44, right: 12, top: 10, bottom: 34 };
export const LOWEST = 0.005;
const REACH = Math.log((1 - LOWEST) / LOWEST);
const TICKS = [0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99];

/** Pass rates of the charts: even in log-odds. */
export const RATES = Array.from({ length: 97 }, (_, i) => rateOf(i / 96));

/** The pass rate at a share of the axis. @param {number} share @returns {number} */
export function rateOf(share) {
  return 1 / (1 + Math.exp(REACH - 2 * REACH * share));
}

/** The share of the axis at a pass rate. @param {number} p @returns {number} */
export function shareOf(p) {
  const inside = Math.min(Math.max(p, LOWEST), 1 - LOWEST);
  return (Math.log(inside / (1 - inside)) + REACH) / (2 * REACH);
}

/** The share of the axis of pass rates at a place of a chart. @param {DOMRect} area @param {number} x @returns {number} */
export function shareAt(area, x) {
  const scale = SIZE.width / area.width;
  return Math.min(Math.max(((x - area.left) * scale - SIZE.left) / (SIZE.width - SIZE.left - SIZE.right), 0), 1);
}

/** @param {number} share */
const across = (share) => SIZE.left + share * (SIZE.width - SIZE.left - SIZE.right);
/** @param {number} share */
const upward = (share) => SIZE.height - SIZE.bottom - share * (SIZE.height - SIZE.top - SIZE.bottom);

/** Round numbers from low to high. @param {number} low @param {number} high @returns {number[]} */
export function ticks(low, high) {
  const rough = (high - low) / 4 || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((size) => size * power).find((size) => size >= rough) ?? rough;
  const found = [];
  for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + step * 1e-9; tick += step)
    found.push(Math.abs(tick) < step / 1e6 ? 0 : tick);
  return found;
}

/** Text that stands in markup. @param {string} text @returns {string} */
export function escaped(text) {
  return text.replace(/[&<>"]/g, (mark) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[mark] ?? mark);
}

/** @param {number} value */
const short = (value) => String(Number(value.toPrecision(4))).replace("-", "−");

/** @param {number} low @param {number} high @param {(value: number) => number} scale */
function upAxis(low, high, scale) {
  return ticks(low, high)
    .map((tick) => {
      const y = upward(scale(tick)).toFixed(1);
      return `<line class="grid" x1="${SIZE.left}" x2="${SIZE.width - SIZE.right}" y1="${y}" y2="${y}"/><text class="tick" x="${SIZE.left - 6}" y="${y}" dy="0.35em" text-anchor="end">${short(tick)}</text>`;
    })
    .join("");
}

/** @param {string} x @param {string} y @param {string} text */
const frame = (x, y, text) =>
  `<svg viewBox="0 0 ${SIZE.width} ${SIZE.height}" aria-hidden="true" focusable="false">${text}<text class="name" x="${SIZE.width - SIZE.right}" y="${SIZE.height - 4}" text-anchor="end">${x}</text><text class="name" x="2" y="9">${y}</text></svg>`;

/** @param {Line} line @param {(value: number) => number} scale @param {(value: number) => number} along */
function polyline(line, scale, along) {
  const points = [];
  for (let i = 0; i < line.values.length; i++) {
    const x = line.at ? along(line.at[i]) : i / (line.values.length - 1);
    points.push(`${across(x).toFixed(1)},${upward(Math.min(Math.max(scale(line.values[i]), 0), 1)).toFixed(1)}`);
  }
  return `<polyline class="line ${line.kind}" points="${points.join(" ")}"/>`;
}

/**
 * Lines over the pass rate, with the law of the prompts behind them.
 * @param {Line[]} lines each at `RATES`
 * @param {{p: number, law: number[], low?: number, high?: number}} options
 * @returns {string}
 */
export function rateChart(lines, { p, law, low, high }) {
  const all = lines.flatMap((line) => Array.from(line.values));
  const least = low ?? Math.min(0, ...all);
  const most = high ?? Math.max(...all, least + 1e-9) * 1.04;
  const scale = (/** @type {number} */ value) => (value - least) / (most - least);
  const peak = Math.max(...law) || 1;
  const bars = law
    .map((share, i) => {
      const [from, to] = [across(i / law.length), across((i + 1) / law.length)];
      const y = upward((0.9 * share) / peak);
      return share
        ? `<rect class="law" x="${from.toFixed(1)}" width="${(to - from).toFixed(1)}" y="${y.toFixed(1)}" height="${(upward(0) - y).toFixed(1)}"/>`
        : "";
    })
    .join("");
  const marks = TICKS.map(
    (tick) =>
      `<text class="tick" x="${across(shareOf(tick)).toFixed(1)}" y="${SIZE.height - SIZE.bottom + 14}" text-anchor="middle">${tick}</text>`,
  ).join("");
  const here = across(shareOf(p)).toFixed(1);
  const marker = `<line class="here" x1="${here}" x2="${here}" y1="${SIZE.top}" y2="${SIZE.height - SIZE.bottom}"/>`;
  const drawn = lines
    .map((line) => polyline(line, scale, shareOf))
    .reverse()
    .join("");
  return frame("pass rate p", "", bars + upAxis(least, most, scale) + marks + marker + drawn);
}

/**
 * Points and one line over the cost.
 * @param {Line} line
 * @param {Point[]} points
 * @param {number} farthest
 * @returns {string}
 */
export function costChart(line, points, farthest) {
  const most = Math.max(...points.map((point) => point.y), ...Array.from(line.values)) * 1.2 || 1;
  const scale = (/** @type {number} */ value) => value / most;
  const along = (/** @type {number} */ value) => value / farthest;
  const marks = ticks(0, farthest)
    .map(
      (tick) =>
        `<text class="tick" x="${across(along(tick)).toFixed(1)}" y="${SIZE.height - SIZE.bottom + 14}" text-anchor="middle">${short(tick)}</text>`,
    )
    .join("");
  /** @type {{from: number, to: number, y: number}[]} */
  const written = [];
  const labels = [...points]
    .sort((left, right) => left.y - right.y)
    .map((point) => {
      const [x, y] = [across(along(point.x)), upward(scale(point.y))];
      const text = point.label.length > 22 ? `${point.label.slice(0, 21)}…` : point.label;
      const length = 6.2 * text.length;
      const toLeft = x + length + 12 > SIZE.width;
      const [from, to] = toLeft ? [x - length - 9, x - 9] : [x + 9, x + length + 9];
      // From the lowest point upwards; a name that would lie on another one moves up.
      let height = y + 4;
      while (written.some((other) => from < other.to && to > other.from && Math.abs(height - other.y) < 12))
        height -= 3;
      written.push({ from, to, y: height });
      return `<text class="name own" x="${(toLeft ? to : from).toFixed(1)}" y="${height.toFixed(1)}" text-anchor="${toLeft ? "end" : "start"}">${escaped(text)}</text>`;
    })
    .join("");
  // The first one, which is being changed, lies on top.
  const spots = [...points]
    .reverse()
    .map(
      ({ x, y, kind }) =>
        `<circle class="spot ${kind}" cx="${across(along(x)).toFixed(1)}" cy="${upward(scale(y)).toFixed(1)}" r="5.5"/>`,
    )
    .join("");
  const name = `<text class="name" x="${SIZE.width - SIZE.right - 4}" y="${SIZE.height - SIZE.bottom - 7}" text-anchor="end">dashed: GRPO with 1, 2, … responses</text>`;
  return frame(
    "responses a prompt",
    "",
    name + upAxis(0, most, scale) + marks + polyline(line, scale, along) + spots + labels,
  );
}
