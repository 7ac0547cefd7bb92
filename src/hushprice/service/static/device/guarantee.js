/** Guarantees: the coin in exact arithmetic, the exact curve of Gaussian noise, and the sum of several losses. */

import { exp, log } from "./numbers.js";

const WORD = 1n << 64n;
const FINE = 512n; // bits after the binary point
const DIGITS = 10n ** 58n;

/** A positive double x in fixed point: x 2^512, exact for x >= 1e-100. */
function fixedPoint(x) {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, x);
  const bits = view.getBigUint64(0);
  const exponent = (bits >> 52n) - 1075n + FINE;
  const mantissa = (bits & 0xfffffffffffffn) | 0x10000000000000n;
  return exponent >= 0n ? mantissa << exponent : mantissa >> -exponent;
}

/** [n, d] with n / d just below e^epsilon: e^epsilon rounded to 60 digits, minus one part in 10^58. */
function odds(epsilon) {
  const x = fixedPoint(epsilon);
  let term = 1n << FINE;
  let sum = 0n;
  for (let k = 1n; term > 0n; k++) {
    sum += term;
    term = (term * x) / (k << FINE);
  }
  const scale = 10n ** BigInt(60 - (sum >> FINE).toString().length);
  const rounded = (2n * sum * scale + (1n << FINE)) >> (FINE + 1n);
  return [rounded * (DIGITS - 1n), scale * DIGITS];
}

/**
 * The largest c such that a coin of probability c / 2^64 keeps the odds of all reports within e^epsilon:
 * c ceil(2^64 / inside) <= e^epsilon (2^64 - c) floor(2^64 / outside), in exact arithmetic.
 */
export function fairCoin(epsilon, inside = 1, outside = 1) {
  const likeliest = (WORD + BigInt(inside) - 1n) / BigInt(inside);
  const rarest = WORD / BigInt(outside);
  const [n, d] = odds(epsilon);
  return (WORD * n * rarest) / (likeliest * d + n * rarest);
}

const ROOT_TWO_PI = 2.5066282746310002;

/** Mills' ratio (1 - Phi(x)) / phi(x) for x >= 0: by the series of Phi below 1, by Laplace's continued fraction above. */
export function mills(x) {
  if (x < 1) {
    let term = x;
    let sum = x;
    for (let k = 3; k < 60; k += 2) sum += term *= (x * x) / k;
    return 0.5 * ROOT_TWO_PI * exp(0.5 * x * x) - sum;
  }
  let tail = x;
  for (let k = 250; k > 0; k--) tail = x + k / tail;
  return 1 / tail;
}

/**
 * The delta of Gaussian noise at this epsilon, mu = sensitivity / standard deviation (Balle & Wang 2018):
 * Phi(t) - e^epsilon Phi(-s), t = mu/2 - epsilon/mu, s = mu/2 + epsilon/mu, where e^epsilon Phi(-s) = phi(t) mills(s).
 * It adds a bound on the rounding error, half of the server's bound, so that no honest server is refused.
 */
export function gaussianDelta(epsilon, mu) {
  if (!(mu > 0)) return 0;
  const t = 0.5 * mu - epsilon / mu;
  const density = exp(-0.5 * t * t) / ROOT_TWO_PI;
  const first = t > 0 ? 1 - density * mills(t) : density * mills(-t);
  const second = density * mills(0.5 * mu + epsilon / mu);
  const rounding = 5e-14 * first * (1 - log(Math.max(first, 1e-300))) + 1e-300;
  return Math.min(Math.max(first - second, 0) + rounding, 1);
}

/**
 * The privacy loss of reports, in a form that adds up: the epsilon of pure mechanisms, the squares of the mu of Gaussian
 * ones, and the slack, the total variation distance between the reports and ideal Gaussian ones.
 *
 * @typedef {{ epsilon: number, square: number, slack: number }} Loss
 */

/** gaussianDelta + (1 + e^epsilon) slack, which is convex in e^epsilon: it falls, then rises. */
function curve(loss, epsilon) {
  const slack = loss.slack > 0 ? (1 + exp(epsilon)) * loss.slack : 0;
  return Math.min(1, gaussianDelta(epsilon - loss.epsilon, Math.sqrt(loss.square)) + slack);
}

/** The epsilon with the least delta; a larger epsilon never has a larger one. */
function minimiser(loss) {
  let [low, high] = [loss.epsilon, loss.epsilon + 200];
  while (loss.slack > 0 && high - low > 1e-9) {
    const third = (high - low) / 3;
    if (curve(loss, low + third) <= curve(loss, high - third)) high -= third;
    else low += third;
  }
  return loss.slack > 0 ? low : high;
}

/** The smallest delta for which the total loss is (epsilon, delta)-private. */
export function lossDelta(loss, epsilon) {
  return epsilon < loss.epsilon ? 1 : curve(loss, Math.min(epsilon, minimiser(loss)));
}

/** The smallest epsilon that holds at this delta; infinite if there is none. */
export function lossEpsilon(loss, delta) {
  if (loss.square === 0 && loss.slack === 0) return loss.epsilon;
  let [low, high] = [loss.epsilon, minimiser(loss)];
  if (curve(loss, high) > delta) return Infinity;
  for (let i = 0; i < 100; i++) {
    const middle = 0.5 * (low + high);
    if (curve(loss, middle) > delta) low = middle;
    else high = middle;
  }
  return high;
}

/** The loss of one report of a mechanism. Two clipped vectors differ by up to 2 C (and rounding), so mu = 2 C / sd. */
export function lossOf(mechanism) {
  if (mechanism.name !== "gaussian") return { epsilon: mechanism.epsilon, square: 0, slack: 0 };
  const mu = (2 * mechanism.clip * (1 + 1e-12)) / mechanism.sd;
  return { epsilon: 0, square: mu * mu, slack: 1e-12 * mechanism.dim };
}
