// @ts-check
// Counting paths on the (pos, neg) lattice. Given its counts, every order of a prompt's responses is equally likely,
// so the chance that a round ends at a cell, given the counts there, does not depend on the pass rate.

/** @type {number[]} */
const logFactorials = [0];

/** log(n!). @param {number} n @returns {number} */
export function logFactorial(n) {
  while (logFactorials.length <= n) {
    logFactorials.push(logFactorials[logFactorials.length - 1] + Math.log(logFactorials.length));
  }
  return logFactorials[n];
}

/** log of n choose k. @param {number} n @param {number} k @returns {number} */
export function logChoose(n, k) {
  return logFactorial(n) - logFactorial(k) - logFactorial(n - k);
}

/**
 * A table over the cells: `[pos * (most + 1) + neg]`.
 * @param {number} most
 * @returns {Float64Array}
 */
export function newTable(most) {
  return new Float64Array((most + 1) ** 2);
}

/**
 * The draws table: responses to ask for next, 0 where the prompt exits. The first round is drawn in any case.
 * @param {number[]} sizes responses of each round
 * @param {(pos: number, neg: number) => boolean} resolved
 * @returns {Float64Array}
 */
export function drawsTable(sizes, resolved) {
  const most = sizes.reduce((sum, size) => sum + size, 0);
  const draws = newTable(most);
  let end = 0;
  for (const size of sizes) {
    for (let pos = 0; pos <= end; pos++) {
      if (end === 0 || !resolved(pos, end - pos)) draws[pos * (most + 1) + end - pos] = size;
    }
    end += size;
  }
  return draws;
}

/**
 * The chance that a round ends at a cell, given the counts there.
 * @param {Float64Array} draws
 * @param {number} most
 * @param {number} [correctFirst] count only the paths that begin with this many correct responses, 0 or 1
 * @returns {Float64Array}
 */
export function reachTable(draws, most, correctFirst = 0) {
  const side = most + 1;
  const reach = newTable(most);
  const first = draws[0];
  for (let pos = correctFirst; pos <= first; pos++) reach[pos * side + first - pos] = correctFirst ? pos / first : 1;
  if (!correctFirst) reach[0] = 1;
  for (let total = 1; total < most; total++) {
    for (let pos = 0; pos <= total; pos++) {
      const neg = total - pos;
      const here = reach[pos * side + neg];
      const more = draws[pos * side + neg];
      if (!(more > 0 && here > 0)) continue;
      for (let right = 0; right <= more; right++) {
        const share = logChoose(total, pos) + logChoose(more, right) - logChoose(total + more, pos + right);
        reach[(pos + right) * side + neg + more - right] += here * Math.exp(share);
      }
    }
  }
  return reach;
}

/**
 * Call `visit` with the rows Binomial(pos; total, p) for total = 0 .. most, each `[pos * rates + rate]`.
 * By Pascal's rule, from sums of positive terms. The array is used again, so nobody keeps it.
 * @param {ArrayLike<number>} rates
 * @param {number} most
 * @param {(total: number, row: Float64Array) => void} visit
 */
export function binomialRows(rates, most, visit) {
  const size = rates.length;
  const row = new Float64Array((most + 1) * size);
  row.fill(1, 0, size);
  visit(0, row);
  for (let total = 1; total <= most; total++) {
    for (let pos = total; pos >= 0; pos--) {
      for (let i = 0; i < size; i++) {
        const p = rates[i];
        const stay = pos < total ? row[pos * size + i] * (1 - p) : 0;
        row[pos * size + i] = stay + (pos > 0 ? row[(pos - 1) * size + i] * p : 0);
      }
    }
    visit(total, row);
  }
}
