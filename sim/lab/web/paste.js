// @ts-check
// What to paste into a project: the policy in Python, as a policy file, and in a trainer.
import { parseExpression, toPython } from "./expression.js";
import { roundSizes } from "./policy.js";

/** @typedef {import("./policy.js").Policy} Policy */

/** Advantages that are an entry of another name with options. @type {Record<string, Record<string, string | number | boolean>>} */
const ADVANTAGE = {
  positives: { name: "class_weights", positive: 1, negative: 0 },
  negatives: { name: "class_weights", positive: 0, negative: -1 },
  max_rl_pool: { name: "max_rl", pool: true },
};

/** @param {Policy} policy */
const isPlain = (policy) => !policy.later || policy.later === policy.m || policy.r === 1;

/** A number as both Python and TOML read one with a point. @param {unknown} value */
const text = (value) => (typeof value === "string" ? JSON.stringify(value) : String(value));

/** @param {Policy} policy @returns {string} */
function pythonRule(policy) {
  switch (policy.rule) {
    case "positive":
      return `Positive(${policy.pos})`;
    case "quota":
      return `Quota(positives=${policy.pos}, negatives=${policy.neg})`;
    case "balance":
      return `Balance(group_size=${policy.n})`;
    case "screen":
      return "~Quota(positives=1, negatives=1)";
    case "expression":
      return "my_rule";
    default:
      return "Never()";
  }
}

/** The rule as a function, where it is an expression; else nothing. @param {Policy} policy @returns {string[]} */
function pythonFunction(policy) {
  if (policy.rule !== "expression") return [];
  return ["@exit_rule", "def my_rule(pos, neg):", `    return ${toPython(parseExpression(policy.expr))}`];
}

/** @param {Policy} policy @returns {string} */
export function python(policy) {
  const body = pythonFunction(policy);
  const rule =
    {
      never: "Never",
      positive: "Positive",
      quota: "Quota",
      balance: "Balance",
      screen: "Quota",
      expression: "exit_rule",
    }[policy.rule] ?? "";
  const budget = isPlain(policy)
    ? `Rounds(samples=${policy.m}, rounds=${policy.r})`
    : `budgets.Stages((${roundSizes(policy).join(", ")}))`;
  const names = [rule, "Policy", isPlain(policy) ? "Rounds" : "budgets"].sort((left, right) => (left < right ? -1 : 1));
  const advantage = ADVANTAGE[policy.adv];
  const pairs =
    advantage && Object.entries(advantage).map(([key, value]) => `"${key}": ${value === true ? "True" : text(value)}`);
  return [
    ...(body.some((line) => line.includes("np.")) ? ["import numpy as np", ""] : []),
    `from ada_bandit import ${names.join(", ")}`,
    "",
    ...(body.length ? [...body, ""] : []),
    "policy = Policy(",
    `    rule=${pythonRule(policy)},`,
    `    budget=${budget},`,
    ...(policy.group === "all" ? [] : [`    group_size=${policy.n},`]),
    `    group="${policy.group}",`,
    `    advantage=${pairs ? `{${pairs.join(", ")}}` : `"${policy.adv}"`},`,
    ...(policy.silent === "mask" ? [] : [`    no_signal="${policy.silent}",`]),
    ")",
  ].join("\n");
}

/** @param {Policy} policy @returns {string} */
export function toml(policy) {
  const rule =
    {
      never: ['name = "never"'],
      positive: ['name = "positive"', `count = ${policy.pos}`],
      quota: ['name = "quota"', `positives = ${policy.pos}`, `negatives = ${policy.neg}`],
      balance: ['name = "balance"', `group_size = ${policy.n}`],
      screen: ['name = "not"', 'rule = { name = "quota", positives = 1, negatives = 1 }'],
      expression: ['name = "my_rule"'],
    }[policy.rule] ?? [];
  const note = pythonFunction(policy);
  const budget = isPlain(policy)
    ? ['name = "rounds"', `samples = ${policy.m}`, `rounds = ${policy.r}`]
    : ['name = "stages"', `sizes = [${roundSizes(policy).join(", ")}]`];
  const advantage = Object.entries(ADVANTAGE[policy.adv] ?? { name: policy.adv }).map(
    ([key, value]) => `${key} = ${text(value)}`,
  );
  return [
    ...(note.length
      ? [
          "# The rule is a function in a file my_rules.py, which programs take by --rules my_rules.py:",
          ...["from ada_bandit import exit_rule", ...note].map((line) => `# ${line}`),
          "",
        ]
      : []),
    ...(policy.group === "all" ? [] : [`group_size = ${policy.n}`]),
    `no_signal = "${policy.silent}"`,
    "",
    "[rule]",
    ...rule,
    "",
    "[budget]",
    ...budget,
    "",
    "[group]",
    `name = "${policy.group}"`,
    "",
    "[advantage]",
    ...advantage,
    "",
  ].join("\n");
}

/** @param {Policy} policy @returns {string} */
export function trl(policy) {
  return [
    "from ada_bandit.adapters.trl import AdaptiveGRPOTrainer",
    python(policy),
    "",
    "# model, reward_funcs, args and train_dataset are those of your GRPOTrainer.",
    "trainer = AdaptiveGRPOTrainer(model, reward_funcs, args, train_dataset, policy=policy)",
  ].join("\n");
}
