// @ts-check
// Laws of the pass rate over prompts, and quadratures that are exact for polynomials of a degree.

/**
 * @typedef {{name: "beta", a: number, b: number}
 *   | {name: "grid", pass_rates: number[], weights: number[]}
 *   | {name: "mixture", laws: Law[], weights: number[]}} Law
 * @typedef {{rates: Float64Array, weights: Float64Array}} Quadrature
 */

/**
 * Eigenvalues of a symmetric tridiagonal matrix and the squared first components of its eigenvectors, by implicit QL:
 * nodes and weights of the Gauss quadrature whose recurrence the matrix holds (Golub and Welsch 1969).
 * @param {number[]} diagonal
 * @param {number[]} beside
 * @returns {Quadrature}
 */
export function gauss(diagonal, beside) {
  const n = diagonal.length;
  const d = Float64Array.from(diagonal);
  const e = new Float64Array(n);
  e.set(beside);
  const first = new Float64Array(n);
  first[0] = 1;
  for (let low = 0; low < n; low++) {
    for (let round = 0; round < 200; round++) {
      let high = low;
      while (high < n - 1 && Math.abs(e[high]) > Number.EPSILON * (Math.abs(d[high]) + Math.abs(d[high + 1]))) high++;
      if (high === low) break;
      let g = (d[low + 1] - d[low]) / (2 * e[low]);
      let r = Math.hypot(g, 1);
      g = d[high] - d[low] + e[low] / (g + (g >= 0 ? r : -r));
      let [sine, cosine, shift] = [1, 1, 0];
      let i = high - 1;
      for (; i >= low; i--) {
        const f = sine * e[i];
        const b = cosine * e[i];
        r = Math.hypot(f, g);
        e[i + 1] = r;
        if (r === 0) {
          d[i + 1] -= shift;
          e[high] = 0;
          break;
        }
        sine = f / r;
        cosine = g / r;
        g = d[i + 1] - shift;
        r = (d[i] - g) * sine + 2 * cosine * b;
        shift = sine * r;
        d[i + 1] = g + shift;
        g = cosine * r - b;
        const above = first[i + 1];
        first[i + 1] = sine * first[i] + cosine * above;
        first[i] = cosine * first[i] - sine * above;
      }
      if (r === 0 && i >= low) continue;
      d[low] -= shift;
      e[low] = g;
      e[high] = 0;
    }
  }
  return { rates: d.map((rate) => Math.min(Math.max(rate, 0), 1)), weights: first.map((value) => value * value) };
}

/** @param {number} a @param {number} b @param {number} degree @returns {Quadrature} */
function betaQuadrature(a, b, degree) {
  const total = a + b;
  const diagonal = [a / total];
  const beside = [];
  for (let k = 1; k <= Math.floor(degree / 2); k++) {
    const size = 2 * k + total - 2;
    diagonal.push((1 + ((a - b) * (total - 2)) / (size * (size + 2))) / 2);
    // At k = 1 the factor total - 1 stands above and below, and may be 0.
    const spread =
      k === 1
        ? (a * b) / (total ** 2 * (total + 1))
        : (k * (k + a - 1) * (k + b - 1) * (k + total - 2)) / (size ** 2 * (size ** 2 - 1));
    beside.push(Math.sqrt(spread));
  }
  return gauss(diagonal, beside);
}

/**
 * Fewer nodes with the same moments up to a degree: the Gauss quadrature of the discrete law, by Lanczos' recurrence.
 * @param {Quadrature} law
 * @param {number} degree
 * @returns {Quadrature}
 */
function compressed({ rates, weights }, degree) {
  const wanted = Math.floor(degree / 2) + 1;
  if (rates.length <= wanted) return { rates, weights };
  const diagonal = [];
  const beside = [];
  /** @type {Float64Array[]} */
  const basis = [weights.map(Math.sqrt)];
  for (let k = 0; k < wanted; k++) {
    const last = basis[k];
    const next = last.map((value, i) => value * rates[i]);
    diagonal.push(dot(next, last));
    // Twice against all that came before: once is lost to rounding.
    for (let pass = 0; pass < 2; pass++) {
      for (const vector of basis) {
        const share = dot(next, vector);
        for (let i = 0; i < next.length; i++) next[i] -= share * vector[i];
      }
    }
    const length = Math.sqrt(dot(next, next));
    // A law of few distinct rates is used up before.
    if (k === wanted - 1 || length < 1e-14) break;
    beside.push(length);
    basis.push(next.map((value) => value / length));
  }
  return gauss(diagonal, beside);
}

/** @param {Float64Array} left @param {Float64Array} right */
function dot(left, right) {
  let sum = 0;
  for (let i = 0; i < left.length; i++) sum += left[i] * right[i];
  return sum;
}

/** @param {Law} law @param {number} degree @returns {Quadrature} */
function plainQuadrature(law, degree) {
  if (law.name === "beta") return betaQuadrature(law.a, law.b, degree);
  if (law.name === "grid") return { rates: Float64Array.from(law.pass_rates), weights: Float64Array.from(law.weights) };
  const parts = law.laws.map((part) => plainQuadrature(part, degree));
  return {
    rates: Float64Array.from(parts.flatMap((part) => [...part.rates])),
    weights: Float64Array.from(parts.flatMap((part, i) => [...part.weights].map((weight) => weight * law.weights[i]))),
  };
}

/** @type {WeakMap<Law, Map<number, Quadrature>>} */
const remembered = new WeakMap();

/**
 * Pass rates and weights, exact for polynomials up to a degree.
 * @param {Law} law
 * @param {number} degree
 * @returns {Quadrature}
 */
export function quadrature(law, degree) {
  const known = remembered.get(law) ?? new Map();
  remembered.set(law, known);
  let found = known.get(degree);
  if (!found) {
    found = compressed(plainQuadrature(law, degree), degree);
    known.set(degree, found);
  }
  return found;
}

/**
 * Shares of prompts in equal bins of a scale.
 * @param {Law} law
 * @param {(rate: number) => number} scale from a pass rate to [0, 1]
 * @param {number} bins
 * @returns {number[]}
 */
export function histogram(law, scale, bins) {
  const shares = Array(bins).fill(0);
  const { rates, weights } = plainQuadrature(law, 400);
  for (let i = 0; i < rates.length; i++) shares[Math.min(Math.floor(scale(rates[i]) * bins), bins - 1)] += weights[i];
  return shares;
}
