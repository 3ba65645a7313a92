// @ts-check
// What a policy does, in sentences.

/** @typedef {import("./policy.js").Policy} Policy */

/** @param {number} count @param {string} one */
const plural = (count, one) => `${count} ${one}${count === 1 ? "" : "s"}`;

/** @type {Record<string, string>} */
export const ADVANTAGE_WORDS = {
  group_std: "Group mean, over the deviation (GRPO)",
  group_mean: "Group mean (Dr. GRPO)",
  pool_mean: "Pool mean (Reinforce-Ada)",
  leave_one_out: "Mean of the others (RLOO)",
  max_rl: "Group mean, over the mean (MaxRL)",
  max_rl_pool: "Pool mean, over the mean",
  constant_baseline: "A constant, 0.5 (REINFORCE)",
  positives: "Right ones alone (RAFT, PSR)",
  negatives: "Wrong ones alone (NSR)",
  ngrpo: "GRPO with one more right one (NGRPO)",
  unbiased: "Unbiased: w(p) = 1 for every rule",
};

/** @param {Policy} policy @returns {string} */
export function describe(policy) {
  const most = policy.m + (policy.r - 1) * (policy.later || policy.m);
  const half = Math.floor(policy.n / 2);
  const first =
    policy.r === 1
      ? `Draw ${plural(policy.m, "response")} for every prompt.`
      : policy.later && policy.later !== policy.m
        ? `Draw ${plural(policy.m, "response")}, then ${policy.later} at a time, at most ${most}.`
        : `Draw ${policy.m} at a time, at most ${most}.`;
  const stop =
    policy.r === 1
      ? ""
      : {
          never: " Never stop early.",
          positive: ` Stop once ${policy.pos} ${policy.pos === 1 ? "is" : "are"} right.`,
          quota: ` Stop once ${policy.pos} ${policy.pos === 1 ? "is" : "are"} right and ${policy.neg} ${policy.neg === 1 ? "is" : "are"} wrong.`,
          balance: ` Stop once ${half} ${half === 1 ? "is" : "are"} right and ${policy.n - half} ${policy.n - half === 1 ? "is" : "are"} wrong.`,
          screen: " Go on only if some are right and some are wrong.",
          expression: ` Stop once ${policy.expr}.`,
        }[policy.rule];
  const keep = {
    balanced: `Train on ${policy.n}, half of each kind where that is possible.`,
    uniform: `Train on ${policy.n} picked at random.`,
    all: "Train on all of them.",
    matched: "Train on all right ones and at most as many wrong ones.",
  }[policy.group];
  return `${first}${stop} ${keep}`;
}
