// @ts-check
// A policy as tables over (pos, neg): draws, what is kept, and with what advantage.
import { drawsTable, logChoose, newTable, reachTable } from "./lattice.js";
import { holds, parseExpression } from "./expression.js";

/**
 * @typedef {object} Policy what defines a policy; plain values, as a link carries them
 * @property {string} rule never, positive, quota, balance, screen or expression
 * @property {number} pos correct responses that are wanted, of positive and quota
 * @property {number} neg incorrect responses that are wanted, of quota
 * @property {string} expr the rule as an expression
 * @property {number} m responses of the first round
 * @property {number} later responses of every later round; 0 for as many as the first
 * @property {number} r rounds at most
 * @property {number} n responses kept
 * @property {string} group balanced, uniform, all or matched
 * @property {string} adv advantage, one of `ADVANTAGES`
 * @property {string} silent mask or leave_out
 */

/**
 * @typedef {object} Split one way in which a group can fall into classes
 * @property {Float64Array} chance
 * @property {Float64Array} keepPos
 * @property {Float64Array} keepNeg
 * @property {Float64Array} advPos
 * @property {Float64Array} advNeg
 */

/**
 * @typedef {object} Tables
 * @property {number} most K, the most responses a prompt may get
 * @property {number} groupSize n
 * @property {Float64Array} draws
 * @property {Float64Array} resolved 1 where the rule holds
 * @property {Float64Array} reach chance that a round ends there, given the counts
 * @property {Float64Array} exits 1 where a prompt can exit
 * @property {Float64Array} signal chance that the group holds both classes
 * @property {Float64Array} keepPos mean number of positives kept
 * @property {Float64Array} keepNeg mean number of negatives kept
 * @property {Float64Array} gainPos mean of kept positives times their advantage
 * @property {Float64Array} gainNeg the same of negatives
 * @property {Split[]} splits
 */

/** What can't be computed, in words that a user can act on. */
export class PolicyError extends Error {}

export const LARGEST = 128;

/** @param {Policy} policy @returns {number[]} */
export function roundSizes(policy) {
  const later = policy.later || policy.m;
  return [policy.m, ...Array(policy.r - 1).fill(later)];
}

/** The predicate of a policy's rule. @param {Policy} policy @returns {(pos: number, neg: number) => boolean} */
export function ruleOf(policy) {
  const half = Math.floor(policy.n / 2);
  switch (policy.rule) {
    case "never":
      return () => false;
    case "positive":
      return (pos) => pos >= policy.pos;
    case "quota":
      return (pos, neg) => pos >= policy.pos && neg >= policy.neg;
    case "balance":
      return (pos, neg) => pos >= half && neg >= policy.n - half;
    case "screen":
      return (pos, neg) => !(pos >= 1 && neg >= 1);
    case "expression": {
      const node = parseExpression(policy.expr);
      return (pos, neg) => holds(node, pos, neg);
    }
    default:
      throw new PolicyError(`the rule “${policy.rule}” is unknown`);
  }
}

/**
 * @typedef {object} Cell what an advantage may look at
 * @property {number} pos
 * @property {number} neg
 * @property {number} keepPos
 * @property {number} keepNeg
 * @property {number} meanKeepPos
 * @property {number} meanKeepNeg
 * @property {number} estimate unbiased estimate of the pass rate
 * @property {number} n
 */

/** @param {number} part @param {number} whole */
const ratio = (part, whole) => part / Math.max(whole, 1);

/** Deviation-scaled advantages of a group. @param {number} pos @param {number} neg @returns {[number, number]} */
function standardised(pos, neg) {
  if (!(pos > 0 && neg > 0)) return [0, 0];
  const n = pos + neg;
  const scale = Math.sqrt((pos * neg) / (n * Math.max(n - 1, 1))) + 1e-4;
  return [neg / n / scale, -pos / n / scale];
}

/** @param {number} mean @returns {[number, number]} */
const overMean = (mean) => (mean > 0 ? [(1 - mean) / (mean + 1e-6), -mean / (mean + 1e-6)] : [1, 0]);

/** Advantages of a kept positive and of a kept negative, by name.
 * @type {Record<string, (cell: Cell) => [number, number]>} */
export const ADVANTAGES = {
  group_std: (cell) => standardised(cell.keepPos, cell.keepNeg),
  group_mean: (cell) => baseline(ratio(cell.keepPos, cell.keepPos + cell.keepNeg)),
  pool_mean: (cell) => baseline(ratio(cell.pos, cell.pos + cell.neg)),
  leave_one_out: (cell) => {
    const others = cell.pos + cell.neg - 1;
    return [1 - ratio(Math.max(cell.pos - 1, 0), others), -ratio(cell.pos, others)];
  },
  max_rl: (cell) => overMean(ratio(cell.keepPos, cell.keepPos + cell.keepNeg)),
  max_rl_pool: (cell) => overMean(ratio(cell.pos, cell.pos + cell.neg)),
  constant_baseline: () => [0.5, -0.5],
  positives: () => [1, 0],
  negatives: () => [0, -1],
  ngrpo: (cell) => standardised(cell.keepPos + 1, cell.keepNeg),
  unbiased: (cell) => {
    const e = cell.estimate;
    if ((e > 0 && !cell.meanKeepPos) || (e < 1 && !cell.meanKeepNeg)) {
      throw new PolicyError(
        "the advantage “unbiased” needs a group with a response of every class; take n of at least 2",
      );
    }
    return [
      e > 0 ? (cell.n * e * 0.5) / cell.meanKeepPos : 0,
      e < 1 ? (-cell.n * (1 - e) * 0.5) / cell.meanKeepNeg : 0,
    ];
  },
};

/** @param {number} mean @returns {[number, number]} */
const baseline = (mean) => [1 - mean, -mean];

/**
 * The ways in which a pool falls into kept positives and negatives, with their chances.
 * @param {string} group
 * @param {number} pos
 * @param {number} neg
 * @param {number} n
 * @returns {{split: number, chance: number, keepPos: number, keepNeg: number}[]}
 */
function keptOf(group, pos, neg, n) {
  const fixed = (/** @type {number} */ keepPos, /** @type {number} */ keepNeg) => [
    { split: 0, chance: 1, keepPos, keepNeg },
  ];
  switch (group) {
    case "balanced": {
      const keepPos = Math.min(pos, Math.max(Math.floor(n / 2), n - neg));
      return fixed(keepPos, Math.min(neg, n - keepPos));
    }
    case "all":
      return fixed(pos, neg);
    case "matched":
      return fixed(pos, Math.min(pos, neg));
    case "uniform": {
      const keep = Math.min(n, pos + neg);
      const found = [];
      for (let k = Math.max(0, keep - neg); k <= Math.min(pos, keep); k++) {
        const log = logChoose(pos, k) + logChoose(neg, keep - k) - logChoose(pos + neg, keep);
        found.push({ split: k, chance: Math.exp(log), keepPos: k, keepNeg: keep - k });
      }
      return found;
    }
    default:
      throw new PolicyError(`the group rule “${group}” is unknown`);
  }
}

/**
 * Compile a policy to its tables.
 * @param {Policy} policy
 * @returns {Tables}
 */
export function compile(policy) {
  const sizes = roundSizes(policy);
  const most = sizes.reduce((sum, size) => sum + size, 0);
  if (most > LARGEST) {
    throw new PolicyError(
      `this policy may draw ${most} responses; the lab draws lattices of up to ${LARGEST}. Take fewer or smaller rounds`,
    );
  }
  const n = policy.group === "all" ? most : policy.n;
  if (n > most)
    throw new PolicyError(
      `a group of ${n} is larger than the ${most} responses that a prompt may get; take a smaller group`,
    );
  const rule = ruleOf({ ...policy, n: policy.n });
  const draws = drawsTable(sizes, rule);
  const reach = reachTable(draws, most);
  const [resolved, exits, signal, keepPos, keepNeg, gainPos, gainNeg] = Array.from({ length: 7 }, () => newTable(most));
  /** @type {Split[]} */
  const splits = [];
  const advantage = ADVANTAGES[policy.adv];
  if (!advantage) throw new PolicyError(`the advantage “${policy.adv}” is unknown`);
  const first = policy.adv === "unbiased" ? reachTable(draws, most, 1) : null;
  for (let pos = 0; pos <= most; pos++) {
    for (let neg = 0; pos + neg <= most; neg++) {
      const at = pos * (most + 1) + neg;
      resolved[at] = Number(rule(pos, neg));
      if (!(reach[at] > 0) || draws[at] > 0) continue;
      exits[at] = 1;
      const ways = keptOf(policy.group, pos, neg, n);
      for (const way of ways) {
        keepPos[at] += way.chance * way.keepPos;
        keepNeg[at] += way.chance * way.keepNeg;
        if (way.keepPos && way.keepNeg) signal[at] += way.chance;
      }
      const estimate = first ? first[at] / reach[at] : NaN;
      for (const way of ways) {
        const split = (splits[way.split] ??= newSplit(most));
        const cell = { pos, neg, ...way, meanKeepPos: keepPos[at], meanKeepNeg: keepNeg[at], estimate, n };
        const [up, down] = advantage(cell);
        split.chance[at] = way.chance;
        split.keepPos[at] = way.keepPos;
        split.keepNeg[at] = way.keepNeg;
        split.advPos[at] = way.keepPos ? up : 0;
        split.advNeg[at] = way.keepNeg ? down : 0;
        gainPos[at] += way.chance * way.keepPos * split.advPos[at];
        gainNeg[at] += way.chance * way.keepNeg * split.advNeg[at];
      }
    }
  }
  const filled = splits.filter(Boolean);
  return {
    most,
    groupSize: n,
    draws,
    resolved,
    reach,
    exits,
    signal,
    keepPos,
    keepNeg,
    gainPos,
    gainNeg,
    splits: filled,
  };
}

/** @param {number} most @returns {Split} */
function newSplit(most) {
  const [chance, keepPos, keepNeg, advPos, advNeg] = Array.from({ length: 5 }, () => newTable(most));
  return { chance, keepPos, keepNeg, advPos, advNeg };
}
