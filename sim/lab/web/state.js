// @ts-check
// The whole state of the lab as plain values, and as the part of a link behind the #.
import { ADVANTAGES, compile, LARGEST } from "./policy.js";

/** @typedef {import("./policy.js").Policy} Policy */
/** @typedef {import("./analysis.js").Model} Model */
/** @typedef {import("./fit.js").Pair} Pair */

/**
 * @typedef {object} State
 * @property {Policy} policy
 * @property {Model} model
 * @property {string} law name of a built-in law, beta or file
 * @property {number} a
 * @property {number} b
 * @property {Pair[]} counts of a dropped file
 * @property {number} p the pass rate whose exit law is shown
 * @property {string} table which table the lattice shows
 * @property {{name: string, policy: Policy}[]} pins
 */

/** @typedef {{name: string, label: string, about: string, policy: Policy}} Preset */

/** @type {Policy} */
const BALANCE = {
  rule: "balance",
  pos: 1,
  neg: 1,
  expr: "pos >= 1 and neg >= 1",
  m: 8,
  later: 0,
  r: 4,
  n: 4,
  group: "balanced",
  adv: "pool_mean",
  silent: "mask",
};
const ONCE = { rule: "never", m: 4, r: 1, n: 4, group: "all" };

/** Policies to start from. @type {Preset[]} */
export const PRESETS = [
  {
    name: "reinforce-ada-balance",
    label: "Reinforce-Ada balance",
    about: "Draw 8 at a time until half of a group can be right and half wrong.",
    policy: BALANCE,
  },
  {
    name: "reinforce-ada-pos",
    label: "Reinforce-Ada pos",
    about: "Draw 8 at a time until one response is right.",
    policy: { ...BALANCE, rule: "positive" },
  },
  {
    name: "mixed",
    label: "Until mixed",
    about: "Draw 4 at a time until one response is right and one is wrong.",
    policy: { ...BALANCE, rule: "quota", m: 4, r: 8 },
  },
  {
    name: "reinforce-ada-seq",
    label: "Reinforce-Ada seq",
    about: "Draw 16 at a time until 8 are right and 8 are wrong.",
    policy: { ...BALANCE, rule: "quota", pos: 8, neg: 8, m: 16, r: 8, n: 16 },
  },
  {
    name: "speed",
    label: "SPEED",
    about: "Screen with 8 responses; draw 16 more only where both kinds came up.",
    policy: {
      ...BALANCE,
      rule: "screen",
      m: 8,
      later: 16,
      r: 2,
      group: "all",
      adv: "leave_one_out",
      silent: "leave_out",
    },
  },
  {
    name: "aero",
    label: "AERO",
    about: "Draw 8, then 2 at a time until one is right; keep as many wrong ones as right ones.",
    policy: { ...BALANCE, rule: "positive", m: 8, later: 2, r: 5, n: 8, group: "matched", adv: "group_std" },
  },
  {
    name: "pods",
    label: "PODS",
    about: "Draw 16, train on a balanced 4.",
    policy: { ...BALANCE, rule: "never", m: 16, r: 1, adv: "group_std" },
  },
  {
    name: "grpo",
    label: "GRPO",
    about: "Draw 4 and keep them all; divide by the group's deviation.",
    policy: { ...BALANCE, ...ONCE, adv: "group_std" },
  },
  {
    name: "dr-grpo",
    label: "Dr. GRPO",
    about: "Draw 4 and keep them all; subtract the group's mean.",
    policy: { ...BALANCE, ...ONCE, adv: "group_mean" },
  },
  {
    name: "rloo",
    label: "RLOO",
    about: "Draw 4 and keep them all; subtract the mean of the others.",
    policy: { ...BALANCE, ...ONCE, adv: "leave_one_out" },
  },
  {
    name: "raft",
    label: "RAFT",
    about: "Draw 4; train on the right ones alone.",
    policy: { ...BALANCE, ...ONCE, adv: "positives" },
  },
  {
    name: "maxrl",
    label: "MaxRL",
    about: "Draw 4 and keep them all; divide by the group's mean.",
    policy: { ...BALANCE, ...ONCE, adv: "max_rl" },
  },
  {
    name: "nsr",
    label: "NSR",
    about: "Draw 8; train on the wrong ones alone.",
    policy: { ...BALANCE, ...ONCE, m: 8, n: 8, adv: "negatives" },
  },
];

/** A preset's policy, to be changed freely. @param {string} name @returns {Policy} */
export function presetPolicy(name) {
  return { ...(PRESETS.find((each) => each.name === name) ?? PRESETS[0]).policy };
}

/** @returns {State} */
export function initialState() {
  return {
    policy: { ...BALANCE },
    model: { objective: "mean", k: 8, nuPos: 1, nuNeg: 1, transfer: 1, updateCost: 0 },
    law: "smollm2-reasoning-gym",
    a: 0.4,
    b: 1.2,
    counts: [],
    p: 0.15,
    table: "draws",
    pins: [{ name: "GRPO", policy: presetPolicy("grpo") }],
  };
}

/** Values that a text may have, and ranges of numbers; whatever else a link says is left out.
 * @type {Record<keyof Policy, string[] | [number, number] | null>} */
const POLICY = {
  rule: ["never", "positive", "quota", "balance", "screen", "expression"],
  pos: [1, LARGEST],
  neg: [1, LARGEST],
  expr: null,
  m: [1, LARGEST],
  later: [0, LARGEST],
  r: [1, LARGEST],
  n: [1, LARGEST],
  group: ["balanced", "uniform", "all", "matched"],
  adv: Object.keys(ADVANTAGES),
  silent: ["mask", "leave_out"],
};
const POLICY_KEYS = /** @type {(keyof Policy)[]} */ (Object.keys(POLICY));
export const TABLES = ["draws", "keep_pos", "keep_neg", "adv_pos", "adv_neg"];
export const MOST_PINS = 4;

/** A part of a text whose parts are joined by ~. @param {unknown} value */
const encoded = (value) => encodeURIComponent(String(value)).replaceAll("~", "%7E");

/** @param {Policy} policy @returns {string} */
const packed = (policy) => POLICY_KEYS.map((key) => encoded(policy[key])).join("~");

/** @param {string} text @returns {Policy | null} */
function unpacked(text) {
  const parts = text.split("~");
  if (parts.length !== POLICY_KEYS.length) return null;
  /** @type {Record<string, string | number>} */
  const policy = {};
  for (let i = 0; i < parts.length; i++) {
    const key = POLICY_KEYS[i];
    const allowed = POLICY[key];
    const value = decoded(parts[i]);
    if (allowed === null) policy[key] = value.slice(0, 400);
    else if (typeof allowed[0] === "string") {
      if (!(/** @type {string[]} */ (allowed).includes(value))) return null;
      policy[key] = value;
    } else {
      const number = Number(value);
      if (!(Number.isInteger(number) && number >= Number(allowed[0]) && number <= Number(allowed[1]))) return null;
      policy[key] = number;
    }
  }
  return /** @type {Policy} */ (/** @type {unknown} */ (policy));
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}

/**
 * The state as text for a link.
 * @param {State} state
 * @param {boolean} withCounts whether the counts of a dropped file go along
 * @returns {string}
 */
export function toHash(state, withCounts) {
  const { model } = state;
  const values = new URLSearchParams({
    policy: packed(state.policy),
    objective: model.objective,
    k: String(model.k),
    nu: `${model.nuPos},${model.nuNeg}`,
    transfer: String(model.transfer),
    cost: String(model.updateCost),
    law: state.law,
    beta: `${state.a},${state.b}`,
    p: String(state.p),
    table: state.table,
  });
  for (const pin of state.pins) values.append("pin", `${encoded(pin.name)}~${packed(pin.policy)}`);
  if (withCounts && state.law === "file") values.set("counts", state.counts.map((pair) => pair.join("-")).join("."));
  return values.toString();
}

/**
 * The state that a link carries; what it leaves out, or says wrongly, is as at the start.
 * @param {string} text
 * @param {string[]} laws names of built-in laws
 * @returns {State}
 */
export function fromHash(text, laws) {
  const state = initialState();
  if (!text) return state;
  state.pins = [];
  const values = new URLSearchParams(text);
  /** @param {string} key @param {number} low @param {number} high @param {number} otherwise @param {number} [index] */
  const number = (key, low, high, otherwise, index = 0) => {
    const part = (values.get(key) ?? "").split(",")[index] ?? "";
    const value = part === "" ? NaN : Number(part);
    return value >= low && value <= high ? value : otherwise;
  };
  state.policy = unpacked(values.get("policy") ?? "") ?? state.policy;
  const objective = values.get("objective") ?? "";
  if (["mean", "log", "pass"].includes(objective)) state.model.objective = objective;
  state.model.k = Math.round(number("k", 1, 64, state.model.k));
  state.model.nuPos = number("nu", 0, 100, state.model.nuPos);
  state.model.nuNeg = number("nu", 0, 100, state.model.nuNeg, 1);
  state.model.transfer = number("transfer", 0, 1, state.model.transfer);
  state.model.updateCost = number("cost", 0, 100, state.model.updateCost);
  state.a = number("beta", 0.01, 100, state.a);
  state.b = number("beta", 0.01, 100, state.b, 1);
  state.p = number("p", 0, 1, state.p);
  if (TABLES.includes(values.get("table") ?? "")) state.table = String(values.get("table"));
  for (const pin of values.getAll("pin").slice(0, MOST_PINS)) {
    const [name, ...rest] = pin.split("~");
    const policy = unpacked(rest.join("~"));
    if (policy && works(policy)) state.pins.push({ name: decoded(name).slice(0, 80), policy });
  }
  const law = values.get("law") ?? "";
  if (law === "file") {
    state.counts = countsFrom(values.get("counts") ?? "");
    if (state.counts.length) state.law = "file";
  } else if (law === "beta" || laws.includes(law)) {
    state.law = law;
  }
  return state;
}

/** Whether a policy can be compiled: one that can't be has no place in a table. @param {Policy} policy @returns {boolean} */
function works(policy) {
  try {
    compile(policy);
    return true;
  } catch {
    return false;
  }
}

/** @param {string} text @returns {Pair[]} */
function countsFrom(text) {
  const pairs = text.split(".").map((part) => part.split("-").map(Number));
  const good = pairs.every(
    (pair) =>
      pair.length === 3 &&
      pair.every(Number.isInteger) &&
      pair[0] >= 0 &&
      pair[0] <= pair[1] &&
      pair[1] >= 1 &&
      pair[1] <= 10000 &&
      pair[2] >= 1,
  );
  return good && text ? /** @type {Pair[]} */ (pairs) : [];
}

/** The name of a policy: the preset's where it is one. @param {Policy} policy @returns {string} */
export function nameOf(policy) {
  const preset = PRESETS.find((each) => samePolicy(each.policy, policy));
  if (preset) return preset.label;
  const rounds =
    policy.r === 1
      ? `${policy.m}`
      : policy.later && policy.later !== policy.m
        ? `${policy.m} + ${policy.r - 1} x ${policy.later}`
        : `${policy.m} x ${policy.r}`;
  const rule = {
    never: "fixed",
    positive: `${policy.pos} right`,
    quota: `${policy.pos} right, ${policy.neg} wrong`,
    balance: "balance",
    screen: "screen",
    expression: policy.expr,
  }[policy.rule];
  return `${rule}; ${rounds}${policy.group === "all" ? "" : `, n = ${policy.n}`}`;
}

/** Whether two policies do the same; what their rule doesn't look at may differ. @param {Policy} left @param {Policy} right */
export function samePolicy(left, right) {
  const looked = (/** @type {Policy} */ policy) => {
    const later = policy.r > 1 && policy.later !== policy.m ? policy.later : 0;
    const pos = ["positive", "quota"].includes(policy.rule) ? policy.pos : 0;
    const neg = policy.rule === "quota" ? policy.neg : 0;
    const n = policy.group === "all" && policy.rule !== "balance" ? 0 : policy.n;
    return JSON.stringify([
      policy.rule,
      pos,
      neg,
      policy.rule === "expression" ? policy.expr : "",
      policy.m,
      later,
      policy.r,
      n,
      policy.group,
      policy.adv,
      policy.silent,
    ]);
  };
  return looked(left) === looked(right);
}
