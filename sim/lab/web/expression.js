// @ts-check
// A rule as an expression in pos and neg: a parser of its own, so that no text of a link or a user is ever run as code.

/**
 * @typedef {{kind: "number", value: number}
 *   | {kind: "name", name: "pos" | "neg"}
 *   | {kind: "call", name: string, of: Node_[]}
 *   | {kind: "sign", of: Node_}
 *   | {kind: "arithmetic", op: string, left: Node_, right: Node_}
 *   | {kind: "compare", op: string, left: Node_, right: Node_}
 *   | {kind: "logic", op: "and" | "or", left: Node_, right: Node_}
 *   | {kind: "not", of: Node_}} Node_
 */

/** Functions by name: how many values they take, what they do, and what NumPy calls them.
 * @type {Record<string, {takes: number, apply: (...values: number[]) => number, numpy: string}>} */
const FUNCTIONS = {
  min: { takes: 2, apply: Math.min, numpy: "np.minimum" },
  max: { takes: 2, apply: Math.max, numpy: "np.maximum" },
  abs: { takes: 1, apply: Math.abs, numpy: "np.abs" },
  sqrt: { takes: 1, apply: Math.sqrt, numpy: "np.sqrt" },
  log: { takes: 1, apply: Math.log, numpy: "np.log" },
};
const LONGEST = 400;
const DEEPEST = 40;

/** An expression that can't be used; the message names the place and the remedy. */
export class ExpressionError extends Error {}

/** @param {string} text @returns {{text: string, at: number}[]} */
function tokens(text) {
  const found = [];
  const pattern = /\s*(?:(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)|([A-Za-z_]\w*)|(<=|>=|==|!=|&&|\|\||[-+*/()<>&|~!,]))/y;
  while (pattern.lastIndex < text.trimEnd().length) {
    const at = pattern.lastIndex;
    const match = pattern.exec(text);
    if (!match) {
      throw new ExpressionError(
        `“${text.slice(at).trim()[0]}” is not understood; use pos, neg, numbers, + - * /, < <= > >= == !=, and, or, not`,
      );
    }
    found.push({ text: match[1] ?? match[2] ?? match[3], at });
  }
  return found;
}

/**
 * Parse an expression that is true or false.
 * @param {string} text
 * @returns {Node_}
 */
export function parseExpression(text) {
  if (text.length > LONGEST)
    throw new ExpressionError(`a rule has at most ${LONGEST} characters; this one has ${text.length}`);
  const list = tokens(text);
  let index = 0;
  let depth = 0;
  const peek = () => list[index]?.text ?? "";
  /** @param {...string} wanted */
  const take = (...wanted) => (wanted.includes(peek()) ? list[index++].text : "");
  /** @param {string} what @returns {never} */
  const fail = (what) => {
    throw new ExpressionError(`${what}${peek() ? `, before “${peek()}”` : " at the end"}`);
  };

  /** @param {string[]} signs @param {"and" | "or"} op @param {() => Node_} next @returns {Node_} */
  const chain = (signs, op, next) => {
    let left = next();
    while (take(...signs)) left = { kind: "logic", op, left: truth(left), right: truth(next()) };
    return left;
  };
  /** @returns {Node_} */
  const either = () => chain(["or", "|", "||"], "or", both);
  /** @returns {Node_} */
  const both = () => chain(["and", "&", "&&"], "and", negated);
  /** @returns {Node_} */
  const negated = () => deeper(() => (take("not", "~", "!") ? { kind: "not", of: truth(negated()) } : compared()));
  /** @returns {Node_} */
  const compared = () => {
    const left = sum();
    const op = take("<", "<=", ">", ">=", "==", "!=");
    if (!op) return left;
    const right = sum();
    if (["<", "<=", ">", ">=", "==", "!="].includes(peek())) fail("compare two values at a time, and join with “and”");
    return { kind: "compare", op, left: number(left), right: number(right) };
  };
  /** @param {string[]} signs @param {() => Node_} next @returns {Node_} */
  const arithmetic = (signs, next) => {
    let left = next();
    for (let op = take(...signs); op; op = take(...signs)) {
      left = { kind: "arithmetic", op, left: number(left), right: number(next()) };
    }
    return left;
  };
  /** @returns {Node_} */
  const sum = () => arithmetic(["+", "-"], product);
  /** @returns {Node_} */
  const product = () => arithmetic(["*", "/"], signed);
  /** @returns {Node_} */
  const signed = () => deeper(() => (take("-") ? { kind: "sign", of: number(signed()) } : atom()));
  /** @returns {Node_} */
  const atom = () => {
    if (take("(")) {
      const inner = deeper(either);
      if (!take(")")) fail("a closing bracket is missing");
      return inner;
    }
    const word = peek();
    if (word === "pos" || word === "neg") {
      index++;
      return { kind: "name", name: word };
    }
    if (/^[\d.]/.test(word)) {
      index++;
      return { kind: "number", value: Number(word) };
    }
    if (Object.hasOwn(FUNCTIONS, word)) {
      index++;
      const { takes } = FUNCTIONS[word];
      if (!take("(")) fail(`${word} needs brackets`);
      const of = [number(sum())];
      while (take(",")) of.push(number(sum()));
      if (!take(")")) fail("a closing bracket is missing");
      if (of.length !== takes) fail(`${word} takes ${takes} value${takes > 1 ? "s" : ""}; got ${of.length}`);
      return { kind: "call", name: word, of };
    }
    if (/^[A-Za-z_]/.test(word))
      fail(`the name “${word}” is unknown; use pos, neg, ${Object.keys(FUNCTIONS).join(", ")}`);
    return fail("a value is missing");
  };
  /** @param {() => Node_} next @returns {Node_} */
  const deeper = (next) => {
    if (++depth > DEEPEST) fail("too many brackets inside each other");
    const node = next();
    depth--;
    return node;
  };

  if (!list.length) throw new ExpressionError("write when a prompt has had enough, such as pos >= 1 and neg >= 1");
  const node = truth(either());
  if (index < list.length) fail("something is missing");
  return node;
}

/** @param {Node_} node */
const isTruth = (node) => node.kind === "compare" || node.kind === "logic" || node.kind === "not";

/** @param {Node_} node @returns {Node_} */
function truth(node) {
  if (!isTruth(node)) throw new ExpressionError("a rule must be true or false: compare something, as in pos >= 2");
  return node;
}

/** @param {Node_} node @returns {Node_} */
function number(node) {
  if (isTruth(node))
    throw new ExpressionError("true and false can't be added or compared; join them with and, or, not");
  return node;
}

/** @type {Record<string, (left: number, right: number) => number>} */
const ARITHMETIC = { "+": (a, b) => a + b, "-": (a, b) => a - b, "*": (a, b) => a * b, "/": (a, b) => a / b };
/** @type {Record<string, (left: number, right: number) => boolean>} */
const COMPARE = {
  "<": (a, b) => a < b,
  "<=": (a, b) => a <= b,
  ">": (a, b) => a > b,
  ">=": (a, b) => a >= b,
  "==": (a, b) => a === b,
  "!=": (a, b) => a !== b,
};

/** @param {Node_} node @param {number} pos @param {number} neg @returns {number} */
function valueOf(node, pos, neg) {
  switch (node.kind) {
    case "number":
      return node.value;
    case "name":
      return node.name === "pos" ? pos : neg;
    case "sign":
      return -valueOf(node.of, pos, neg);
    case "call":
      return FUNCTIONS[node.name].apply(...node.of.map((each) => valueOf(each, pos, neg)));
    case "arithmetic":
      return ARITHMETIC[node.op](valueOf(node.left, pos, neg), valueOf(node.right, pos, neg));
    default:
      throw new ExpressionError("a number was expected");
  }
}

/**
 * Whether the rule holds at a cell.
 * @param {Node_} node
 * @param {number} pos
 * @param {number} neg
 * @returns {boolean}
 */
export function holds(node, pos, neg) {
  switch (node.kind) {
    case "compare":
      return COMPARE[node.op](valueOf(node.left, pos, neg), valueOf(node.right, pos, neg));
    case "not":
      return !holds(node.of, pos, neg);
    case "logic":
      return node.op === "and"
        ? holds(node.left, pos, neg) && holds(node.right, pos, neg)
        : holds(node.left, pos, neg) || holds(node.right, pos, neg);
    default:
      throw new ExpressionError("a comparison was expected");
  }
}

/** The same rule for NumPy arrays. @param {Node_} node @returns {string} */
export function toPython(node) {
  switch (node.kind) {
    case "number":
      return String(node.value);
    case "name":
      return node.name;
    case "sign":
      return `-${inBrackets(node.of)}`;
    case "call":
      return `${FUNCTIONS[node.name].numpy}(${node.of.map(toPython).join(", ")})`;
    case "not":
      return `~${inBrackets(node.of)}`;
    case "arithmetic":
    case "compare":
      return `${inBrackets(node.left)} ${node.op} ${inBrackets(node.right)}`;
    case "logic":
      return `${inBrackets(node.left)} ${node.op === "and" ? "&" : "|"} ${inBrackets(node.right)}`;
  }
}

/** @param {Node_} node @returns {string} */
function inBrackets(node) {
  return node.kind === "number" || node.kind === "name" || node.kind === "call"
    ? toPython(node)
    : `(${toPython(node)})`;
}
