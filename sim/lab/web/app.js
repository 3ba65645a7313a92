// @ts-check
// The page: settings in, numbers and pictures out. Nothing is kept but the state, and the link holds it.
import { analyze, cellLaw, efficiency, grpoAtCost, overLaw, plainGrpo } from "./analysis.js";
import { costChart, escaped, RATES, rateChart, rateOf, shareAt, shareOf } from "./charts.js";
import { lawOfCounts, parseCounts } from "./fit.js";
import { cellAt, drawLattice, entry, forReached, rateAt } from "./lattice_view.js";
import { histogram, quadrature } from "./laws.js";
import { python, toml, trl } from "./paste.js";
import { compile } from "./policy.js";
import { fromHash, MOST_PINS, nameOf, PRESETS, samePolicy, toHash } from "./state.js";
import { ADVANTAGE_WORDS, describe } from "./words.js";

/** @typedef {import("./laws.js").Law} Law */
/** @typedef {import("./policy.js").Policy} Policy */
/** @typedef {import("./policy.js").Tables} Tables */
/** @typedef {{name: string, label: string, note: string, law: Law}} BuiltIn */
/** @typedef {import("./analysis.js").Sums} Sums */
/** @typedef {{tables: Tables, sums: Sums, grpo: Sums, at: import("./analysis.js").Analysis}} Found */
/** @typedef {Found & {label: string, kind: string}} Computed */

/** Laws that are built in; the build puts them here. @type {BuiltIn[]} */
const LAWS = /** @type {any} */ (globalThis).LAB_LAWS;
const BINS = 28;
const POLICY_NUMBERS = ["pos", "neg", "m", "r", "later", "n"];
const MODEL_NUMBERS = ["k", "nuPos", "nuNeg", "transfer", "updateCost"];

/** @template {HTMLElement} T @param {string} id @returns {T} */
const byId = (id) => /** @type {T} */ (document.getElementById(id));
const input = (/** @type {string} */ id) => /** @type {HTMLInputElement} */ (byId(id));

const names = LAWS.map((each) => each.name);
let state = fromHash(location.hash.slice(1), names);
/** @type {Law} */
let law;
let lawWords = "";
/** @type {number[]} */
let spread = [];
/** @type {import("./lattice_view.js").At | null} */
let selected = null;
/** @type {Computed[]} */
let computed = [];
/** What was computed on this law. @type {Map<string, Found>} */
const known = new Map();

const percent = (/** @type {number} */ share) => `${(100 * share).toFixed(share > 0 && share < 0.0995 ? 1 : 0)}\u00a0%`;
const fixed = (/** @type {number} */ value, digits = 2) =>
  (Math.abs(value) < 0.5 * 10 ** -digits ? 0 : value).toFixed(digits).replace("-", "−");
const rate = (/** @type {number} */ p) => (p < 0.1 || p > 0.9 ? p.toFixed(3) : p.toFixed(2));

/** Take up the law that the state names. */
function takeLaw() {
  const builtIn = LAWS.find((each) => each.name === state.law);
  if (builtIn) {
    law = builtIn.law;
    lawWords = builtIn.note;
  } else if (state.law === "file" && state.counts.length) {
    const prompts = state.counts.reduce((sum, pair) => sum + pair[2], 0);
    const fitted = lawOfCounts(state.counts);
    law = fitted.law;
    const uneven = new Set(state.counts.map((pair) => pair[1])).size > 1;
    const caution =
      " The prompts have different numbers of responses; if they stopped by their rewards, this law is biased. The command log reads such files.";
    lawWords = `Your file: ${prompts} prompts; ${fitted.how}.${uneven ? caution : ""}`;
  } else {
    state.law = "beta";
    law = { name: "beta", a: state.a, b: state.b };
    lawWords = `Pass rates follow Beta(${fixed(state.a)}, ${fixed(state.b)}).`;
  }
  spread = histogram(law, shareOf, BINS);
  known.clear();
}

/** Compute everything and show it. */
function update() {
  const start = performance.now();
  const problem = compute();
  byId("error").textContent = problem;
  byId("lattice-box").classList.toggle("stale", Boolean(problem));
  byId("sentence").textContent = describe(state.policy);
  showControls();
  if (!problem) {
    showLattice();
    showTiles();
    showCharts();
    showTable();
    showPaste();
    document.body.dataset.milliseconds = (performance.now() - start).toFixed(1);
  }
  remember();
}

/** @returns {string} what is wrong, or nothing */
function compute() {
  try {
    computed = [{ name: nameOf(state.policy), policy: state.policy }, ...state.pins].map(({ name, policy }, i) => ({
      label: name,
      kind: i ? `pin${i - 1}` : "current",
      ...found(policy),
    }));
    return "";
  } catch (error) {
    if (error instanceof Error && error.constructor !== Error) return error.message;
    throw error;
  }
}

/** What a policy does on the law; pinned ones, and what was there a moment ago, are not computed again. @param {Policy} policy @returns {Found} */
function found(policy) {
  const key = JSON.stringify([policy, state.model]);
  let result = known.get(key);
  if (!result) {
    if (known.size > 100) known.clear();
    const tables = compile(policy);
    const sums = overLaw(tables, law, state.model);
    const grpo = grpoAtCost(sums.samples, law, state.model);
    result = { tables, sums, grpo, at: analyze(tables, RATES) };
    known.set(key, result);
  }
  return result;
}

function showLattice() {
  if (!computed.length) return;
  const { tables } = computed[0];
  if (selected && !(tables.reach[selected.pos * (tables.most + 1) + selected.neg] > 0)) selected = null;
  const law = cellLaw(tables, state.p);
  drawLattice(/** @type {HTMLCanvasElement} */ (byId("lattice")), {
    tables,
    law,
    table: state.table,
    p: state.p,
    at: selected,
  });
  showCell(law);
  const here = analyze(tables, [state.p]);
  const range = input("rate");
  range.value = String(Math.round(1000 * shareOf(state.p)));
  range.setAttribute("aria-valuetext", `p = ${rate(state.p)}`);
  byId("rate-value").textContent = rate(state.p);
  facts("at-rate", [
    ["Responses a prompt", fixed(here.samples[0]), `in ${fixed(here.rounds[0])} rounds`],
    ["Group has both kinds", percent(here.signal[0]), ""],
    ["Rule holds at the end", percent(here.resolved[0]), ""],
    ["Pool mean less p (bias)", fixed(here.bias[0], 3), "stopping makes it differ"],
    ["Weight w(p)", fixed(here.weight[0]), "mean update over the gradient of p"],
    ["Objective F(p)", fixed(here.objective[0], 3), "the integral of w"],
  ]);
  for (const sign of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".of-draws")))
    sign.hidden = state.table !== "draws";
  byId("size-note").textContent =
    state.table === "draws"
      ? "size: how often prompts of pass rate p stop there"
      : "shade and number: the table's entry where a prompt stops";
}

/** @param {Float64Array} law */
function showCell(law) {
  const { tables } = computed[0];
  if (!selected) return;
  const { pos, neg } = selected;
  const at = pos * (tables.most + 1) + neg;
  const where = `${pos} right, ${neg} wrong. ${percent(law[at])} of the prompts with p = ${rate(state.p)} come here`;
  if (tables.draws[at]) byId("cell").textContent = `${where}; they draw ${tables.draws[at]} more.`;
  else {
    const values = ["keep_pos", "keep_neg", "adv_pos", "adv_neg"].map((table) => entry(tables, table, at));
    const why = tables.resolved[at] ? "the rule holds" : "the budget is spent";
    const kept = `keep ${fixed(values[0], Number.isInteger(values[0]) ? 0 : 2)} right and ${fixed(values[1], Number.isInteger(values[1]) ? 0 : 2)} wrong`;
    byId("cell").textContent =
      `${where} and stop: ${why}. They ${kept}, with weights ${fixed(values[2], 3)} and ${fixed(values[3], 3)}.`;
  }
}

/** @param {string} id @param {[string, string, string][]} rows */
function facts(id, rows) {
  byId(id).innerHTML = rows
    .map(
      ([name, value, more]) =>
        `<div><dt>${escaped(name)}</dt><dd>${escaped(value)}${more ? `<small>${escaped(more)}</small>` : ""}</dd></div>`,
    )
    .join("");
}

function showTiles() {
  const { sums, grpo } = computed[0];
  const four = found(plainGrpo(4)).sums;
  const own = efficiency(sums, state.model);
  const beside = (/** @type {import("./analysis.js").Sums} */ other) => {
    const reference = efficiency(other, state.model);
    return reference > 0 ? `${fixed(own / reference)} ×` : "no value";
  };
  facts("tiles", [
    ["Responses a prompt", fixed(sums.samples), `in ${fixed(sums.rounds)} rounds`],
    ["Groups with signal", percent(sums.signal), `GRPO at the same cost: ${percent(grpo.signal)}`],
    ["Progress per unit of cost", beside(grpo), "that of GRPO at the same cost"],
    ["Progress per unit of cost", beside(four), "that of GRPO with n\u00a0=\u00a04"],
    ["Pool mean less pass rate", fixed(sums.bias, 3), sums.bias ** 2 < 1e-20 ? "no bias" : "bias that stopping makes"],
  ]);
  byId("law-note").textContent = lawWords;
}

function showCharts() {
  /** GRPO at the cost of the policy at hand: a mixture of two group sizes. */
  const n = Math.max(1, Math.floor(computed[0].sums.samples + 1e-12));
  const share = Math.max(computed[0].sums.samples - n, 0);
  const plain = (/** @type {number} */ size, /** @type {number} */ p) => 1 - p ** size - (1 - p) ** size;
  const reference = RATES.map((p) => (1 - share) * plain(n, p) + share * plain(n + 1, p));
  const options = { p: state.p, law: spread };
  const of = (/** @type {"samples" | "signal" | "weight" | "objective"} */ field) =>
    computed.map(({ kind, at }) => ({ kind, values: at[field] }));
  const chart = (/** @type {string} */ id, /** @type {string} */ text) => {
    byId(id).innerHTML = text;
  };
  chart("chart-samples", rateChart(of("samples"), options));
  chart(
    "chart-signal",
    rateChart([...of("signal"), { kind: "reference", values: reference }], { ...options, low: 0, high: 1.02 }),
  );
  chart("chart-weight", rateChart(of("weight"), options));
  chart("chart-objective", rateChart(of("objective"), options));

  const farthest = Math.min(Math.max(8, ...computed.map(({ sums }) => sums.samples * 1.25)), 160);
  const sizes = Array.from({ length: Math.floor(farthest) }, (_, i) => i + 1);
  const nodes = quadrature(law, sizes.length + 2);
  const signal = sizes.map((size) =>
    nodes.weights.reduce((sum, weight, i) => sum + weight * plain(size, nodes.rates[i]), 0),
  );
  const points = computed.map(({ sums, kind, label }) => ({ x: sums.samples, y: sums.signal, kind, label }));
  chart("chart-cost", costChart({ kind: "reference", values: signal, at: sizes }, points, farthest));
  const sample = (/** @type {string} */ kind) =>
    `<svg viewBox="0 0 34 10" aria-hidden="true"><line class="line ${kind}" x1="0" x2="34" y1="5" y2="5"/></svg>`;
  byId("names").innerHTML = [
    ...computed.map(
      ({ label, kind }) => `<li>${sample(kind)}${escaped(label)}${kind === "current" ? " (this policy)" : ""}</li>`,
    ),
    `<li>${sample("reference")}GRPO at the same cost</li>`,
  ].join("");
}

function showTable() {
  const four = efficiency(found(plainGrpo(4)).sums, state.model);
  const rows = computed.map(({ label, kind, sums, grpo }, i) => {
    const own = efficiency(sums, state.model);
    const reference = efficiency(grpo, state.model);
    const times = (/** @type {number} */ other) => (other > 0 ? fixed(own / other) : "–");
    const last = i
      ? `<button type="button" data-unpin="${i - 1}" aria-label="Remove ${escaped(label)}">Remove</button>`
      : "";
    const sample = `<svg viewBox="0 0 34 10" width="34" height="10" aria-hidden="true"><line class="line ${kind}" x1="0" x2="34" y1="5" y2="5"/></svg>`;
    return `<tr><th scope="row">${sample} ${escaped(label)}${i ? "" : " (this policy)"}</th><td>${fixed(sums.samples)}</td><td>${fixed(sums.rounds)}</td><td>${percent(sums.signal)}</td><td>${percent(grpo.signal)}</td><td>${times(reference)}</td><td>${times(four)}</td><td>${fixed(sums.bias, 3)}</td><td>${last}</td></tr>`;
  });
  const heads = [
    "Policy",
    "Responses a prompt",
    "Rounds",
    "Groups with signal",
    "GRPO at the same cost",
    "Progress per cost, over that GRPO",
    "Progress per cost, over GRPO n = 4",
    "Bias of the pool mean",
  ];
  byId("table").innerHTML =
    `<thead><tr>${heads.map((head) => `<th scope="col">${head}</th>`).join("")}<td></td></tr></thead><tbody>${rows.join("")}</tbody>`;
  const pinned = state.pins.some((pin) => samePolicy(pin.policy, state.policy));
  const button = /** @type {HTMLButtonElement} */ (byId("pin"));
  button.disabled = pinned || state.pins.length >= MOST_PINS;
  byId("pin-note").textContent = pinned
    ? "This policy is pinned; change it to compare."
    : state.pins.length >= MOST_PINS
      ? "Four are pinned; remove one first."
      : "Up to four stay here beside the one you change.";
}

function showPaste() {
  const kind = /** @type {HTMLInputElement} */ (document.querySelector('input[name="paste"]:checked')).value;
  byId("paste").textContent = (kind === "toml" ? toml : kind === "trl" ? trl : python)(state.policy);
}

/** Let the controls show the state. */
function showControls() {
  const { policy, model } = state;
  for (const id of ["rule", "group", "adv", "silent", "expr"])
    set(id, String(policy[/** @type {keyof Policy} */ (id)]));
  set("objective", model.objective);
  set("law", state.law);
  for (const key of POLICY_NUMBERS) setNumber(key, Number(policy[/** @type {keyof Policy} */ (key)]));
  for (const key of MODEL_NUMBERS) setNumber(key, Number(model[/** @type {keyof typeof model} */ (key)]));
  setNumber("a", state.a);
  setNumber("b", state.b);
  const preset = PRESETS.find((each) => samePolicy(each.policy, policy));
  set("preset", preset?.name ?? "");
  byId("about").textContent = preset?.about ?? "Changed by you.";
  const shown = {
    pos: ["positive", "quota"].includes(policy.rule),
    neg: policy.rule === "quota",
    later: policy.r > 1,
    n:
      policy.group === "balanced" ||
      policy.group === "uniform" ||
      policy.group === "matched" ||
      policy.rule === "balance",
    k: model.objective === "pass",
    a: state.law === "beta",
    b: state.law === "beta",
  };
  for (const [key, show] of Object.entries(shown)) byId(`field-${key}`).hidden = !show;
  /** @type {HTMLElement} */ (document.querySelector('[data-for="expression"]')).hidden = policy.rule !== "expression";
  for (const each of /** @type {NodeListOf<HTMLInputElement>} */ (document.querySelectorAll('input[name="table"]')))
    each.checked = each.value === state.table;
  byId("with-counts-line").hidden = state.law !== "file";
  const own = /** @type {HTMLOptionElement | null} */ (document.querySelector('#law option[value="file"]'));
  if (own) own.disabled = !state.counts.length;
}

/** @param {string} id @param {string} value */
function set(id, value) {
  const element = input(id);
  if (element !== document.activeElement || element.tagName === "SELECT") element.value = value;
}

/** @param {string} key @param {number} value */
function setNumber(key, value) {
  const [range, number] = [input(`${key}-range`), input(key)];
  const shown = range.dataset.log ? Math.log(value) : value;
  if (range !== document.activeElement) range.value = String(shown);
  if (number !== document.activeElement) number.value = String(Math.round(value * 1000) / 1000);
}

/** Make a number's field: a slider, and a box for exact values. @param {HTMLElement} place */
function buildNumber(place) {
  const { number: key = "", label = "", min = "1", max = "1", step = "1", log = "" } = place.dataset;
  const scale = (/** @type {string} */ value) => (log ? String(Math.log(Number(value))) : value);
  place.className = "field";
  place.id = `field-${key}`;
  place.innerHTML = `<label for="${key}">${label}</label><div class="pair"><input type="range" id="${key}-range" min="${scale(min)}" max="${scale(max)}" step="${log || step === "any" ? 0.01 : step}" data-log="${log}" aria-label="${label}, slider"><input type="number" id="${key}" min="${min}" max="${key in limits ? limits[key] : max}" step="${step}"></div>`;
  const range = input(`${key}-range`);
  const box = input(key);
  range.addEventListener("input", () =>
    takeNumber(key, log ? Math.round(Math.exp(Number(range.value)) * 100) / 100 : Number(range.value)),
  );
  box.addEventListener("input", () => {
    const value = Number(box.value);
    const whole = step === "any" || Number.isInteger(value);
    if (box.value !== "" && whole && value >= Number(box.min) && value <= Number(box.max)) takeNumber(key, value);
  });
  box.addEventListener("blur", () => showControls());
}

/** What a box admits beyond its slider. @type {Record<string, number>} */
const limits = {
  pos: 128,
  neg: 128,
  m: 128,
  r: 128,
  later: 128,
  n: 128,
  a: 100,
  b: 100,
  nuPos: 100,
  nuNeg: 100,
  updateCost: 100,
};

/** @param {string} key @param {number} value */
function takeNumber(key, value) {
  if (POLICY_NUMBERS.includes(key)) Object.assign(state.policy, { [key]: value });
  else if (MODEL_NUMBERS.includes(key)) Object.assign(state.model, { [key]: value });
  else {
    Object.assign(state, { [key]: value });
    takeLaw();
  }
  update();
}

/** Put the state into the link, which a reload or a friend opens. */
function remember() {
  try {
    history.replaceState(null, "", `#${toHash(state, input("with-counts").checked)}`);
  } catch {
    // Some browsers limit how often a page may do so; the next change catches up.
  }
}

/** @param {number} p */
function takeRate(p) {
  state.p = Math.min(Math.max(p, rateOf(0)), rateOf(1));
  if (computed.length && !byId("error").textContent) {
    const start = performance.now();
    showLattice();
    showCharts();
    document.body.dataset.milliseconds = (performance.now() - start).toFixed(1);
  }
  remember();
}

/** @param {number} round @param {number} along */
function walk(round, along) {
  if (!computed.length) return;
  const { tables } = computed[0];
  /** @type {Map<number, number[]>} */
  const rounds = new Map();
  forReached(tables, (pos, neg) => rounds.set(pos + neg, [...(rounds.get(pos + neg) ?? []), pos]));
  const totals = [...rounds.keys()].sort((left, right) => left - right);
  const total = selected ? selected.pos + selected.neg : totals[0];
  const wanted = totals[Math.min(Math.max(totals.indexOf(total) + round, 0), totals.length - 1)];
  const row = (rounds.get(wanted) ?? [0]).sort((left, right) => left - right);
  const share = selected && total ? selected.pos / total : state.p;
  const nearest = row.reduce(
    (best, pos, i) => (Math.abs(pos - share * wanted) < Math.abs(row[best] - share * wanted) ? i : best),
    0,
  );
  const pos = row[Math.min(Math.max(nearest - along, 0), row.length - 1)];
  selected = { pos, neg: wanted - pos };
  showLattice();
}

/** @param {File} file */
async function readFile(file) {
  byId("file-error").textContent = "";
  try {
    state.counts = parseCounts(await file.text());
    state.law = "file";
    takeLaw();
    update();
  } catch (error) {
    byId("file-error").textContent = error instanceof Error ? error.message : "the file can't be read";
  }
}

/** @param {string} text @param {string} what */
async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    byId("copied").textContent = `${what} copied.`;
  } catch {
    byId("copied").textContent = "The browser doesn't allow that; select the text, or take the address above.";
  }
}

/** @param {string} id @param {[string, string][]} options */
function fillSelect(id, options) {
  byId(id).append(...options.map(([value, label]) => new Option(label, value)));
}

function connect() {
  fillSelect("preset", [
    ...PRESETS.map((each) => /** @type {[string, string]} */ ([each.name, each.label])),
    ["", "A policy of my own"],
  ]);
  fillSelect("adv", Object.entries(ADVANTAGE_WORDS));
  fillSelect("law", [
    ...LAWS.map((each) => /** @type {[string, string]} */ ([each.name, each.label])),
    ["beta", "Beta(a, b), by sliders"],
    ["file", "My file"],
  ]);
  for (const place of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-number]")))
    buildNumber(place);
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("preset").addEventListener("change", () => {
    const preset = PRESETS.find((each) => each.name === input("preset").value);
    if (preset) state.policy = { ...preset.policy };
    update();
  });
  for (const id of ["rule", "group", "adv", "silent", "expr"]) {
    byId(id).addEventListener("input", () => {
      Object.assign(state.policy, { [id]: input(id).value });
      update();
    });
  }
  byId("objective").addEventListener("change", () => {
    state.model.objective = input("objective").value;
    update();
  });
  byId("law").addEventListener("change", () => {
    state.law = input("law").value;
    takeLaw();
    update();
  });
  input("rate").addEventListener("input", () => takeRate(rateOf(Number(input("rate").value) / 1000)));
  for (const each of document.querySelectorAll('input[name="table"]')) {
    each.addEventListener("change", () => {
      state.table = /** @type {HTMLInputElement} */ (each).value;
      showLattice();
      remember();
    });
  }
  for (const each of document.querySelectorAll('input[name="paste"]')) each.addEventListener("change", showPaste);
  connectLattice();
  for (const chart of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".drag"))) {
    const follow = (/** @type {PointerEvent} */ event) =>
      event.buttons && takeRate(rateOf(shareAt(chart.getBoundingClientRect(), event.clientX)));
    chart.addEventListener("pointerdown", follow);
    chart.addEventListener("pointermove", follow);
  }
  byId("pin").addEventListener("click", () => {
    state.pins.push({ name: nameOf(state.policy), policy: { ...state.policy } });
    update();
  });
  byId("table").addEventListener("click", (event) => {
    const button = /** @type {HTMLElement} */ (event.target).closest("[data-unpin]");
    if (!button) return;
    state.pins.splice(Number(/** @type {HTMLElement} */ (button).dataset.unpin), 1);
    update();
    byId("pin").focus();
  });
  const drop = byId("drop");
  input("file").addEventListener(
    "change",
    () => input("file").files?.[0] && readFile(/** @type {FileList} */ (input("file").files)[0]),
  );
  for (const [kind, over] of /** @type {[string, boolean][]} */ ([
    ["dragover", true],
    ["dragleave", false],
    ["drop", false],
  ])) {
    document.addEventListener(kind, (event) => {
      event.preventDefault();
      drop.classList.toggle("over", over);
    });
  }
  document.addEventListener("drop", (event) => event.dataTransfer?.files[0] && readFile(event.dataTransfer.files[0]));
  byId("with-counts").addEventListener("change", remember);
  byId("copy").addEventListener("click", () => copy(byId("paste").textContent ?? "", "Text"));
  byId("copy-link").addEventListener("click", () => copy(location.href, "Link"));
  byId("skip").addEventListener("click", (event) => {
    // The part of the address behind # holds the state.
    event.preventDefault();
    byId("result").focus();
  });
  window.addEventListener("hashchange", () => {
    state = fromHash(location.hash.slice(1), names);
    takeLaw();
    update();
  });
  window.addEventListener("resize", () => showLattice());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => showLattice());
}

function connectLattice() {
  const box = byId("lattice-box");
  const canvas = byId("lattice");
  const spot = (/** @type {PointerEvent} */ event) => {
    const area = canvas.getBoundingClientRect();
    return { x: event.clientX - area.left, y: event.clientY - area.top };
  };
  const follow = (/** @type {PointerEvent} */ event) => {
    if (!computed.length) return;
    const { x, y } = spot(event);
    selected = cellAt(computed[0].tables, canvas.clientWidth, x, y);
    if (event.buttons && event.type === "pointermove") takeRate(rateAt(canvas.clientWidth, x, y));
    else showLattice();
  };
  box.addEventListener("pointerdown", follow);
  box.addEventListener("pointermove", follow);
  box.addEventListener("keydown", (event) => {
    const moves = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] };
    const move = moves[/** @type {keyof typeof moves} */ (event.key)];
    if (!move) return;
    event.preventDefault();
    walk(move[0], move[1]);
  });
}

if (matchMedia("(max-width: 999px)").matches)
  for (const each of document.querySelectorAll("details")) each.open = false;
connect();
takeLaw();
update();
