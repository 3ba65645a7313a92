// @ts-check
// Exact analysis of a policy: what it does at given pass rates, over a law, and under the score model.
import { binomialRows } from "./lattice.js";
import { quadrature } from "./laws.js";
import { compile } from "./policy.js";

/** @typedef {import("./policy.js").Tables} Tables */
/** @typedef {import("./policy.js").Policy} Policy */
/** @typedef {import("./laws.js").Law} Law */

/**
 * @typedef {object} Model the score model
 * @property {string} objective mean, log or pass@k
 * @property {number} k of pass@k
 * @property {number} nuPos noise ratio of positives
 * @property {number} nuNeg noise ratio of negatives
 * @property {number} transfer
 * @property {number} updateCost
 */

/**
 * @typedef {object} Analysis arrays `[rate]`
 * @property {Float64Array} samples responses a prompt
 * @property {Float64Array} rounds
 * @property {Float64Array} signal chance that the group holds both classes
 * @property {Float64Array} resolved chance that the rule holds at the exit
 * @property {Float64Array} bias of the pool mean
 * @property {Float64Array} weight w(p)
 * @property {Float64Array} objective F(p), the integral of w from 0
 */

/**
 * What a policy does at pass rates, exactly.
 * @param {Tables} tables
 * @param {ArrayLike<number>} rates
 * @returns {Analysis}
 */
export function analyze(tables, rates) {
  const size = rates.length;
  const side = tables.most + 1;
  const [samples, rounds, signal, resolved, bias, weight, objective] = Array.from(
    { length: 7 },
    () => new Float64Array(size),
  );
  const ends = exitTotals(tables);
  /** Coefficients of w over the row before: what an exit with this total adds. @type {Float64Array | null} */
  let waiting = weightShare(tables, 1, ends);
  binomialRows(rates, tables.most, (total, row) => {
    // The weight of exits with one more response is a sum over this row: nothing is divided by p or q.
    if (total < tables.most && waiting) {
      for (let pos = 0; pos <= total; pos++) {
        const share = waiting[pos];
        if (share) for (let i = 0; i < size; i++) weight[i] += share * row[pos * size + i];
      }
    }
    waiting = weightShare(tables, total + 2, ends);
    for (let pos = 0; pos <= total; pos++) {
      const at = pos * side + total - pos;
      const reach = tables.reach[at];
      if (!(reach > 0)) continue;
      const going = tables.draws[at] > 0;
      for (let i = 0; i < size; i++) {
        const chance = reach * row[pos * size + i];
        if (going) {
          rounds[i] += chance;
        } else {
          samples[i] += chance * total;
          signal[i] += chance * tables.signal[at];
          resolved[i] += chance * tables.resolved[at];
          bias[i] += chance * (pos / total);
        }
      }
    }
    const here = total ? weightShare(tables, total, ends) : null;
    if (here) {
      // The integral of Binomial(k; t - 1, p) is P(Binomial(t, p) > k) / t.
      for (let i = 0; i < size; i++) {
        let beyond = 0;
        for (let pos = total; pos >= 1; pos--) {
          beyond += row[pos * size + i];
          objective[i] += (here[pos - 1] / total) * beyond;
        }
      }
    }
  });
  for (let i = 0; i < size; i++) bias[i] -= rates[i];
  return { samples, rounds, signal, resolved, bias, weight, objective };
}

/** Totals at which a prompt can exit. @param {Tables} tables @returns {Set<number>} */
function exitTotals(tables) {
  const side = tables.most + 1;
  const found = new Set();
  tables.exits.forEach((exit, at) => exit && found.add(Math.floor(at / side) + (at % side)));
  return found;
}

/**
 * c with sum_k c[k] Binomial(k; total - 1, p) = the share of w(p) of the exits with `total` responses.
 * @param {Tables} tables
 * @param {number} total
 * @param {Set<number>} ends
 * @returns {Float64Array | null}
 */
function weightShare(tables, total, ends) {
  if (!ends.has(total)) return null;
  const side = tables.most + 1;
  const share = new Float64Array(total);
  for (let k = 0; k < total; k++) {
    const up = (k + 1) * side + total - k - 1;
    const down = k * side + total - k;
    const gain = (tables.exits[up] * tables.reach[up] * tables.gainPos[up]) / (k + 1);
    const loss = (tables.exits[down] * tables.reach[down] * tables.gainNeg[down]) / (total - k);
    share[k] = (total / tables.groupSize) * (gain - loss);
  }
  return share;
}

/**
 * The chance that a round ends at every cell, at one pass rate: at exits, the exit law.
 * @param {Tables} tables
 * @param {number} rate
 * @returns {Float64Array}
 */
export function cellLaw(tables, rate) {
  const side = tables.most + 1;
  const law = new Float64Array(side ** 2);
  binomialRows([rate], tables.most, (total, row) => {
    for (let pos = 0; pos <= total; pos++) {
      const at = pos * side + total - pos;
      law[at] = tables.reach[at] * row[pos];
    }
  });
  return law;
}

/** p q f'(p). @param {Model} model @param {number} p @returns {number} */
function slope(model, p) {
  const q = 1 - p;
  if (model.objective === "log") return q;
  return model.objective === "mean" ? p * q : model.k * p * q ** model.k;
}

/**
 * @typedef {object} Sums what a policy adds up to over a law; each is a mean over prompts
 * @property {number} samples
 * @property {number} rounds
 * @property {number} signal
 * @property {number} resolved
 * @property {number} bias mean of the pool mean's bias
 * @property {number} progress W
 * @property {number} noise V
 * @property {number} kept responses with an advantage
 */

/**
 * Sums of a policy over a law, without quadrature error.
 * @param {Tables} tables
 * @param {Law} law
 * @param {Model} model
 * @returns {Sums}
 */
export function overLaw(tables, law, model) {
  const extra = model.objective === "pass" ? model.k : 0;
  const { rates, weights } = quadrature(law, tables.most + 4 + extra);
  const analysis = analyze(tables, rates);
  const size = rates.length;
  let others = 0;
  const pull = new Float64Array(size);
  for (let i = 0; i < size; i++) {
    pull[i] = slope(model, rates[i]);
    others += weights[i] * pull[i];
  }
  for (let i = 0; i < size; i++) pull[i] = (1 - model.transfer) * pull[i] + model.transfer * others;
  let [progress, noise, kept] = [0, 0, 0];
  const side = tables.most + 1;
  binomialRows(rates, tables.most, (total, row) => {
    for (let pos = 0; pos <= total; pos++) {
      const at = pos * side + total - pos;
      if (!tables.exits[at]) continue;
      for (const split of tables.splits) {
        const up = split.keepPos[at] * split.advPos[at];
        const down = split.keepNeg[at] * split.advNeg[at];
        const energy = model.nuPos * up * split.advPos[at] + model.nuNeg * down * split.advNeg[at];
        const rows = (split.advPos[at] ? split.keepPos[at] : 0) + (split.advNeg[at] ? split.keepNeg[at] : 0);
        if (!rows) continue;
        const reach = tables.reach[at] * split.chance[at];
        for (let i = 0; i < size; i++) {
          const mass = weights[i] * reach * row[pos * size + i];
          const u = up * (1 - rates[i]) - down * rates[i];
          progress += mass * u * pull[i];
          noise += mass * (u * u + energy);
          kept += mass * rows;
        }
      }
    }
  });
  const mean = (/** @type {Float64Array} */ values) => values.reduce((sum, value, i) => sum + weights[i] * value, 0);
  return {
    samples: mean(analysis.samples),
    rounds: mean(analysis.rounds),
    signal: mean(analysis.signal),
    resolved: mean(analysis.resolved),
    bias: mean(analysis.bias),
    progress,
    noise,
    kept,
  };
}

/** W^2 / (V C), progress per unit of cost. @param {Sums} sums @param {Model} model @returns {number} */
export function efficiency(sums, model) {
  return sums.noise > 0 ? sums.progress ** 2 / (sums.noise * (sums.samples + model.updateCost * sums.kept)) : 0;
}

/** GRPO: n responses, all kept, reward less mean over deviation. @param {number} n @returns {Policy} */
export function plainGrpo(n) {
  return {
    rule: "never",
    pos: 1,
    neg: 1,
    expr: "",
    m: n,
    later: 0,
    r: 1,
    n,
    group: "all",
    adv: "group_std",
    silent: "mask",
  };
}

/**
 * GRPO with a mean number of responses: every prompt gets one of two neighbouring group sizes by chance.
 * @param {number} samples responses a prompt, at least 1
 * @param {Law} law
 * @param {Model} model
 * @returns {Sums}
 */
export function grpoAtCost(samples, law, model) {
  const low = Math.max(1, Math.floor(samples + 1e-12));
  const share = Math.max(samples - low, 0);
  const sums = overLaw(compile(plainGrpo(low)), law, model);
  if (share < 1e-12) return sums;
  const more = overLaw(compile(plainGrpo(low + 1)), law, model);
  for (const key of /** @type {(keyof Sums)[]} */ (Object.keys(sums)))
    sums[key] = (1 - share) * sums[key] + share * more[key];
  return sums;
}
