/** The price, the score and the report: functions of numbers, without randomness of their own. */

import {
  bestNormalMargin,
  directionInto,
  exp,
  hex,
  highHalf,
  log,
  logNormalCdf,
  lowHalf,
  normal,
  normalCdf,
  omega,
  uniformOf,
} from "./numbers.js";

// -- the price ------------------------------------------------------------------------------------------------------

/**
 * What a device knows of each family of demand. mean: psi'(eta), the expected demand; logMean: its logarithm, null where
 * demand can be negative; best: the best of all prices for b > 0; possible: whether an outcome can be; binary: whether
 * outcomes are 0 and 1.
 */
const DEMAND = {
  linear: {
    mean: (eta) => eta,
    logMean: null,
    best: (a, b, cost) => 0.5 * (a / b + cost),
    possible: (y) => typeof y === "number" && Number.isFinite(y),
    binary: false,
  },
  logistic: {
    mean: (eta) => 1 / (1 + exp(-eta)),
    logMean: (eta) => -((0 > -eta ? 0 : -eta) + log(1 + exp(-Math.abs(eta)))),
    best: (a, b, cost) => cost + (1 + omega(a - b * cost - 1)) / b,
    possible: (y) => y === 0 || y === 1,
    binary: true,
  },
  poisson: {
    mean: exp,
    logMean: (eta) => eta,
    best: (a, b, cost) => cost + 1 / b,
    possible: (y) => Number.isInteger(y) && y >= 0,
    binary: false,
  },
  probit: {
    mean: normalCdf,
    logMean: logNormalCdf,
    best: (a, b, cost) => cost + bestNormalMargin(a - b * cost) / b,
    possible: (y) => y === 0 || y === 1,
    binary: true,
  },
};

export const FAMILIES = Object.freeze(Object.keys(DEMAND));

function demandOf(family) {
  if (!Object.hasOwn(DEMAND, family)) throw new RangeError("unknown family of demand");
  return DEMAND[family];
}

/** psi'(eta), the expected demand. */
export const mean = (family, eta) => demandOf(family).mean(eta);

/** Whether demand of this family can be y. */
export const possible = (family, y) => demandOf(family).possible(y);

/** Whether customers of this family buy one or none. */
export const binary = (family) => demandOf(family).binary;

/** (p - cost) psi'(a - b p). */
const profit = (family, a, b, p, cost) => (p - cost) * mean(family, a - b * p);

/** min(max(p, low), high) as Python has it: the first of two that are equal or cannot be compared. */
export function clamp(p, low, high) {
  const q = low > p ? low : p;
  return high < q ? high : q;
}

/** The better end of [low, high]; for b <= 0, where nothing between them earns more. */
function bestEnd(family, a, b, cost, low, high) {
  const { logMean } = demandOf(family);
  if (logMean === null) return profit(family, a, b, high, cost) >= profit(family, a, b, low, cost) ? high : low;
  if (high >= cost) return high;
  // log((cost - p) psi'(a - b p)) below the cost, where psi' itself could overflow
  const logLoss = (p) => log(cost - p) + logMean(a - b * p);
  return logLoss(high) <= logLoss(low) ? high : low;
}

/** The p in [low, high] that maximises (p - cost) psi'(a - b p). */
export function bestPrice(family, a, b, cost, low, high) {
  if (!(b > 0)) return bestEnd(family, a, b, cost, low, high);
  return clamp(demandOf(family).best(a, b, cost), low, high);
}

/** How many prices of the ladder lie below p (or, with `orAt`, not above it). */
function below(ladder, p, orAt = false) {
  let n = 0;
  while (n < ladder.length && (orAt ? ladder[n] <= p : ladder[n] < p)) n++;
  return n;
}

/** Of the ladder's prices first .. last, the neighbours of p. */
function neighbours(p, ladder, first, last) {
  const above = Math.min(Math.max(below(ladder, p), first), last);
  return [Math.max(above - 1, first), above];
}

/** Of the ladder's prices first .. last, the one that earns most: for b > 0 a neighbour of p, otherwise an end. */
function betterRung(family, a, b, cost, p, ladder, first, last) {
  const [under, above] = b > 0 ? neighbours(p, ladder, first, last) : [first, last];
  const more = profit(family, a, b, ladder[above], cost) > profit(family, a, b, ladder[under], cost);
  return more ? ladder[above] : ladder[under];
}

/** The one nearest to p, the lower of two. */
function nearestRung(p, ladder, first, last) {
  const [under, above] = neighbours(p, ladder, first, last);
  return ladder[above] - p < p - ladder[under] ? ladder[above] : ladder[under];
}

/**
 * The price within [low, high], on the ladder if there is one, for a customer with a = z.alpha and b = z.beta:
 * a uniform one (explore), the best one (exploit), or the level (fixed).
 */
export function quoteOnTerms(phase, family, a, b, level, u, cost, low, high, ladder) {
  let p = level;
  if (phase === "explore") p = low + (high - low) * u;
  else if (phase === "exploit") p = bestPrice(family, a, b, cost, low, high);
  p = clamp(p, low, high);
  if (ladder.length === 0) return p;
  const first = below(ladder, low);
  const last = below(ladder, high, true) - 1;
  if (phase === "explore") return ladder[first + Math.min(Math.floor(u * (last - first + 1)), last - first)];
  if (phase === "exploit") return betterRung(family, a, b, cost, p, ladder, first, last);
  return nearestRung(p, ladder, first, last);
}

/** z.alpha and z.beta, summed in the order of the entries. */
export function utility(z, theta) {
  const d = z.length;
  let a = z[0] * theta[0];
  let b = z[0] * theta[d];
  for (let j = 1; j < d; j++) {
    a += z[j] * theta[j];
    b += z[j] * theta[d + j];
  }
  return [a, b];
}

// -- the report -----------------------------------------------------------------------------------------------------

const CELLS = 64; // steps of the grid in one standard deviation

/** The score (y - psi'(a - b p)) (z, -f (p - c) z), c = shift and f = factor. */
export function score(family, theta, z, price, y, shift, factor) {
  const d = z.length;
  const [a, b] = utility(z, theta);
  const raw = y - mean(family, a - b * price);
  const residual = raw === raw ? clamp(raw, -1e100, 1e100) : 0;
  const g = new Float64Array(2 * d);
  for (let j = 0; j < d; j++) {
    g[j] = residual * z[j];
    g[d + j] = -factor * (price - shift) * g[j];
  }
  return g;
}

/** [L, R] with L = max |g_i| and |g| = L R, without overflow. */
function sizeOf(g) {
  let largest = 0;
  for (const x of g) if (Math.abs(x) > largest) largest = Math.abs(x);
  if (largest === 0) return [0, 0];
  let total = 0;
  for (const x of g) total += (x / largest) * (x / largest);
  return [largest, Math.sqrt(total)];
}

/**
 * Which of a seed's directions agree best with g: of each pair the one whose product with g is not negative, and of
 * these the `top` with the largest product, the first ones where equal. Entry i is the index 2 i or 2 i + 1, or -1.
 * There are always exactly `top` of them, however the products are rounded: that is what the guarantee rests on.
 */
function sides(g, largest, seed, pairs, top) {
  const [high, low] = [highHalf(seed), lowHalf(seed)];
  const v = new Float64Array(g.length);
  const dots = new Float64Array(pairs);
  const chosen = new Int32Array(pairs);
  for (let i = 0; i < pairs; i++) {
    directionInto(high, low, i, v);
    let dot = 0;
    if (largest > 0) for (let k = 0; k < g.length; k++) dot += (g[k] / largest) * v[k];
    dots[i] = Math.abs(dot);
    chosen[i] = 2 * i + (dot < 0 ? 1 : 0);
  }
  const best = Array.from(chosen.keys()).sort((i, j) => dots[j] - dots[i] || i - j);
  for (const i of best.slice(top)) chosen[i] = -1;
  return chosen;
}

/** Index number `place` of the chosen ones, or of all the others, in rising order. */
function pick(chosen, inside, place) {
  for (let index = 0; index < 2 * chosen.length; index++) {
    if ((chosen[index >> 1] === index) === inside && place-- === 0) return index;
  }
  throw new RangeError("there is no such place");
}

/**
 * The report of a vector g from random words; a g that is not finite counts as 0.
 *
 * Directions take the words (seed, flip, coin, place), the last one only if there is more than one pair: with the
 * chance coin / 2^64 the report names one of the best directions, else one of the others; for |g| < C it first takes -g
 * for g with the chance (1 - |g| / C) / 2. The grid takes one word per coordinate: floor(g_i / h + 64 N_i + 1/2), where
 * h = sd / 64.
 */
export function privatize(mechanism, g, words) {
  const x = g.every(Number.isFinite) ? g : new Float64Array(g.length);
  const [largest, root] = sizeOf(x);
  const norm = largest * root;
  const { clip, pairs, top, coin } = mechanism;
  if (mechanism.name === "gaussian") {
    const step = mechanism.sd / CELLS;
    const cell = (value, i) => Math.floor(value / step + CELLS * normal(words[i]) + 0.5) + 0;
    return { grid: Array.from(x, (value, i) => cell(norm <= clip ? value : (value / largest) * (clip / root), i)) };
  }
  const [seed, flip, luck, place] = words;
  const inside = luck < coin;
  const among = BigInt(inside ? top : 2 * pairs - top);
  const entry = pairs > 1 ? Number((place * among) >> 64n) : 0;
  const index = pick(sides(x, largest, seed, pairs, top), inside, entry);
  const ratio = norm / clip;
  const flipped = uniformOf(flip) < 0.5 * (1 - (1 < ratio ? 1 : ratio));
  return { seed: hex(seed), index: flipped ? index ^ 1 : index };
}
