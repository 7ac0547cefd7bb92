/** The dashboard's own computations: differences of cumulative counts, and the best price of an estimate. */

import { mean } from "./device/kernels.js";

/** Pairs of points of the history that are far enough apart for shares and means not to be mostly noise. */
export function stretches(past) {
  const n = past.customers.length;
  const wide = Math.max(1, Math.round(n / 24));
  return Array.from({ length: Math.max(0, n - 1) }, (_, k) => [Math.max(0, k + 1 - wide), k + 1]);
}

/** The mean of a sum over each stretch, as [time, mean]. */
export function perCustomer(past, sum, count) {
  return stretches(past).flatMap(([from, to]) => {
    const n = past[count][to] - past[count][from];
    return n > 0 ? [[past.at[to], (past[sum][to] - past[sum][from]) / n]] : [];
  });
}

/**
 * The allowed price with the highest expected profit from a customer, under an estimate of the history. It is for charts
 * only: a grid search, then a finer one around the best point. Quoted prices come from the service or from a device.
 */
export function bestPrice({ family, cost, allowed, ladder }, theta, context) {
  const d = context.length;
  let [a, b] = [0, 0];
  for (let j = 0; j < d; j++) {
    a += context[j] * theta[j];
    b += context[j] * theta[d + j];
  }
  const earns = (p) => (p - cost) * mean(family, a - b * p);
  const best = (prices) => prices.reduce((top, p) => (earns(p) > earns(top) ? p : top));
  const rungs = ladder.filter((p) => p >= allowed[0] && p <= allowed[1]);
  if (rungs.length) return best(rungs);
  let [low, high] = allowed;
  for (let round = 0; round < 3; round++) {
    const step = (high - low) / 24;
    const top = best(Array.from({ length: 25 }, (_, k) => low + k * step));
    [low, high] = [Math.max(allowed[0], top - step), Math.min(allowed[1], top + step)];
  }
  return (low + high) / 2;
}
