// @ts-check
// A dropped file of pass rates: read, and turned into a law, in the browser and nowhere else.

/** @typedef {import("./laws.js").Law} Law */
/** @typedef {[correct: number, total: number, prompts: number]} Pair */

/** A file that can't be used; the message names the line and the remedy. */
export class FileError extends Error {}

const THRESHOLD = 0.5;
const SMOOTH_BELOW = 64;
const MOST_RESPONSES = 10000;

/**
 * Read counts: CSV with correct and total, or with prompt_id and reward; JSON lines with correct and total, or rewards.
 * @param {string} text
 * @returns {Pair[]} correct and total, and how many prompts have them
 */
export function parseCounts(text) {
  const lines = text.replace(/^\uFEFF/, "").split(/\r?\n/);
  const first = lines.findIndex((line) => line.trim());
  if (first < 0) throw new FileError("the file is empty; it needs a line for each prompt");
  /** @type {Map<string, Pair>} */
  const found = new Map();
  /** @param {number} correct @param {number} total @param {number} line */
  const add = (correct, total, line) => {
    if (!(
      Number.isInteger(correct) &&
      Number.isInteger(total) &&
      correct >= 0 &&
      correct <= total &&
      total >= 1 &&
      total <= MOST_RESPONSES
    )) {
      throw new FileError(
        `line ${line}: correct and total must be whole numbers with 0 <= correct <= total and total from 1 to ${MOST_RESPONSES}; got ${correct} of ${total}`,
      );
    }
    const pair = found.get(`${correct}/${total}`);
    if (pair) pair[2] += 1;
    else found.set(`${correct}/${total}`, [correct, total, 1]);
  };
  if (lines[first].trim().startsWith("{")) readJsonLines(lines, add);
  else readCsv(lines, first, add);
  if (!found.size) throw new FileError("the file holds no prompt; it needs a line for each");
  return [...found.values()].sort((left, right) => left[1] - right[1] || left[0] - right[0]);
}

/** @param {string[]} lines @param {(correct: number, total: number, line: number) => void} add */
function readJsonLines(lines, add) {
  lines.forEach((line, index) => {
    if (!line.trim()) return;
    let row;
    try {
      row = JSON.parse(line);
    } catch {
      throw new FileError(
        `line ${index + 1} is not JSON; every line must be an object with correct and total, or with rewards`,
      );
    }
    if (Array.isArray(row?.rewards)) {
      const scored = row.rewards.filter((/** @type {unknown} */ reward) => reward !== null);
      if (scored.some((/** @type {unknown} */ reward) => typeof reward !== "number" && typeof reward !== "boolean")) {
        throw new FileError(`line ${index + 1}: rewards must be numbers, true, false or null`);
      }
      if (!scored.length) throw new FileError(`line ${index + 1} has no reward that is a number; leave it out`);
      const right = scored.filter((/** @type {number | boolean} */ reward) => Number(reward) > THRESHOLD);
      add(right.length, scored.length, index + 1);
    } else if (row && "correct" in row && "total" in row) {
      add(row.correct, row.total, index + 1);
    } else {
      throw new FileError(`line ${index + 1} has neither rewards nor correct and total`);
    }
  });
}

/** @param {string} line @returns {string[]} */
function fields(line) {
  return [...line.matchAll(/(?:^|,)(?:"((?:[^"]|"")*)"|([^,]*))/g)].map((match) =>
    (match[1]?.replaceAll('""', '"') ?? match[2] ?? "").trim(),
  );
}

/** @param {string[]} lines @param {number} first @param {(correct: number, total: number, line: number) => void} add */
function readCsv(lines, first, add) {
  const head = fields(lines[first]).map((name) => name.toLowerCase());
  const [correct, total, prompt, reward] = ["correct", "total", "prompt_id", "reward"].map((name) =>
    head.indexOf(name),
  );
  const counts = correct >= 0 && total >= 0;
  if (!counts && !(prompt >= 0 && reward >= 0)) {
    throw new FileError(
      `the columns are ${head.join(", ")}; the file needs correct and total, or prompt_id and reward`,
    );
  }
  /** @type {Map<string, [number, number, number]>} */
  const prompts = new Map();
  for (let index = first + 1; index < lines.length; index++) {
    if (!lines[index].trim()) continue;
    const row = fields(lines[index]);
    if (counts) {
      add(row[correct] === "" ? NaN : Number(row[correct]), row[total] === "" ? NaN : Number(row[total]), index + 1);
      continue;
    }
    const value = row[reward] === "" ? NaN : Number(row[reward]);
    if (!Number.isFinite(value))
      throw new FileError(`line ${index + 1}: the reward “${row[reward] ?? ""}” is no number`);
    const seen = prompts.get(row[prompt]) ?? [0, 0, index + 1];
    prompts.set(row[prompt], [seen[0] + Number(value > THRESHOLD), seen[1] + 1, seen[2]]);
  }
  for (const [right, all, line] of prompts.values()) add(right, all, line);
}

/**
 * The law of the pass rate behind counts, with a word on how it came about. Below 64 responses a prompt it is the
 * mixture of the prompts' posteriors under a Beta prior of maximum likelihood, else that of correct / total.
 * @param {Pair[]} pairs
 * @returns {{law: Law, how: string}}
 */
export function lawOfCounts(pairs) {
  const prompts = pairs.reduce((sum, pair) => sum + pair[2], 0);
  const totals = pairs.map((pair) => pair[1]);
  if (Math.min(...totals) >= SMOOTH_BELOW || Math.max(...totals) === 1) {
    return {
      law: gridOf(pairs, ([correct, total]) => correct / total, prompts),
      how: "each pass rate is correct / total",
    };
  }
  const prior = fitBeta(pairs);
  if (prior.kind === "one")
    return {
      law: { name: "grid", pass_rates: [prior.mean], weights: [1] },
      how: `the rates differ no more than by chance: every prompt has p = ${prior.mean.toFixed(3)}`,
    };
  if (prior.kind === "ends")
    return {
      law: gridOf(pairs, ([correct]) => Number(correct > 0), prompts),
      how: "every prompt is always or never right",
    };
  const { a, b } = prior;
  const law = /** @type {Law} */ ({
    name: "mixture",
    laws: pairs.map(([correct, total]) => ({ name: "beta", a: a + correct, b: b + total - correct })),
    weights: pairs.map((pair) => pair[2] / prompts),
  });
  return {
    law,
    how: `smoothed: the prompts' posteriors under a fitted Beta(${a.toPrecision(3)}, ${b.toPrecision(3)})`,
  };
}

/** @param {Pair[]} pairs @param {(pair: Pair) => number} rate @param {number} prompts @returns {Law} */
function gridOf(pairs, rate, prompts) {
  /** @type {Map<number, number>} */
  const atoms = new Map();
  for (const pair of pairs) atoms.set(rate(pair), (atoms.get(rate(pair)) ?? 0) + pair[2] / prompts);
  const rates = [...atoms.keys()].sort((left, right) => left - right);
  return { name: "grid", pass_rates: rates, weights: rates.map((p) => atoms.get(p) ?? 0) };
}

/**
 * A Beta prior by maximum likelihood, or the limit that the likelihood tends to.
 * @param {Pair[]} pairs
 * @returns {{kind: "beta", a: number, b: number} | {kind: "one", mean: number} | {kind: "ends"}}
 */
export function fitBeta(pairs) {
  const sum = (/** @type {(pair: Pair) => number} */ of) => pairs.reduce((all, pair) => all + pair[2] * of(pair), 0);
  const prompts = sum(() => 1);
  const pooled = sum((pair) => pair[0]) / sum((pair) => pair[1]);
  if (pooled === 0 || pooled === 1 || Math.max(...pairs.map((pair) => pair[1])) === 1)
    return { kind: "one", mean: pooled };
  if (pairs.every(([correct, total]) => correct === 0 || correct === total)) return { kind: "ends" };
  // The likelihood is a sum of log(a + i), log(b + i) and log(a + b + i): how often each of them occurs.
  const most = Math.max(...pairs.map((pair) => pair[1]));
  const [right, wrong, both] = [0, 1, 2].map(() => new Float64Array(most));
  for (const [correct, total, count] of pairs) {
    for (let i = 0; i < total; i++) {
      both[i] += count;
      if (i < correct) right[i] += count;
      if (i < total - correct) wrong[i] += count;
    }
  }
  /** @param {number} a @param {number} b */
  const value = (a, b) => {
    let all = 0;
    for (let i = 0; i < most; i++) {
      all += right[i] * Math.log(a + i) + wrong[i] * Math.log(b + i) - both[i] * Math.log(a + b + i);
    }
    return all / prompts;
  };
  let best = { a: pooled, b: 1 - pooled, value: -Infinity };
  for (let step = 0; step < 25; step++) {
    const size = Math.exp(Math.log(1e-6) + (step / 24) * Math.log(1e12));
    const here = value(pooled * size, (1 - pooled) * size);
    if (here > best.value) best = { a: pooled * size, b: (1 - pooled) * size, value: here };
  }
  for (let round = 0; round < 500; round++) {
    const { a, b } = best;
    // Slope and curvature in (log a, log b).
    let [byA, byB, aa, bb, ab] = [0, 0, 0, 0, 0];
    for (let i = 0; i < most; i++) {
      const [u, v, w] = [1 / (a + i), 1 / (b + i), 1 / (a + b + i)];
      byA += right[i] * u - both[i] * w;
      byB += wrong[i] * v - both[i] * w;
      aa += both[i] * w * w - right[i] * u * u;
      bb += both[i] * w * w - wrong[i] * v * v;
      ab += both[i] * w * w;
    }
    const slope = [(a * byA) / prompts, (b * byB) / prompts];
    const hessian = [(a * a * aa + a * byA) / prompts, (a * b * ab) / prompts, (b * b * bb + b * byB) / prompts];
    const determinant = hessian[0] * hessian[2] - hessian[1] ** 2;
    const concave = hessian[0] < 0 && determinant > 0;
    let move = concave
      ? [
          (hessian[1] * slope[1] - hessian[2] * slope[0]) / determinant,
          (hessian[1] * slope[0] - hessian[0] * slope[1]) / determinant,
        ]
      : [slope[0] * 10, slope[1] * 10];
    const length = Math.hypot(...move);
    if (length > 1) move = move.map((part) => part / length);
    let next = best;
    for (let half = 0; half < 60; half++) {
      const at = { a: a * Math.exp(move[0]), b: b * Math.exp(move[1]) };
      const here = value(at.a, at.b);
      if (here > best.value) {
        next = { ...at, value: here };
        break;
      }
      move = move.map((part) => part / 2);
    }
    if (next === best) break;
    best = next;
    if (best.a + best.b > 1e6) break;
  }
  const oneRate =
    sum(([correct, total]) => correct * Math.log(pooled) + (total - correct) * Math.log1p(-pooled)) / prompts;
  if (best.a + best.b > 0.99e6 || best.value <= oneRate + 1e-9) return { kind: "one", mean: pooled };
  return { kind: "beta", a: best.a, b: best.b };
}
