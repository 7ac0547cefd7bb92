/** Published parameters, checked against what this device promised, and what is done with them. */

import { InvalidInput } from "./errors.js";
import { fairCoin, lossDelta, lossOf } from "./guarantee.js";
import { FAMILIES, clamp, privatize, quoteOnTerms, score, utility } from "./kernels.js";
import {
  LARGEST,
  LARGEST_EPSILON,
  MECHANISMS,
  PrivacyPromise,
  SMALLEST_EPSILON,
  demand,
  demandAtMost,
  demandCustomers,
  isName,
  isNumber,
  isPair,
  isPlain,
  pinsOf,
} from "./promise.js";

export const PROTOCOL = 1;
export const PHASES = Object.freeze(["explore", "exploit", "fixed"]);
const MODES = ["live", "shadow", "frozen"];

const LARGEST_THETA = 1e6; // of the centre and the radius of Theta
const LARGEST_PAIRS = 1024;
const LARGEST_DIM = 1000;
const MOST_WORK = 1 << 17; // numbers of all directions of a report: a server may not ask for more
const ROUNDING = 1 + 1e-9; // of a clip bound, which is derived by a square root, and of a point on the edge of Theta

// -- reading a document ----------------------------------------------------------------------------------------------

function number(x, name, low = -LARGEST, high = LARGEST) {
  demand(isNumber(x, low, high), `The published ${name} is not a number from ${low} to ${high}.`);
  return x;
}

function whole(x, name, low, high) {
  demand(Number.isInteger(number(x, name, low, high)), `The published ${name} is not a whole number.`);
  return x;
}

function numbers(x, name, length, limit) {
  demand(Array.isArray(x) && x.length === length, `The published ${name} is not a list of ${length} numbers.`);
  return Object.freeze(x.map((value) => number(value, name, -limit, limit)));
}

function pair(x, name, within = null) {
  demand(isPair(x), `The published ${name} is not a range [low, high].`);
  const inside = within === null || (x[0] >= within[0] && x[1] <= within[1]);
  demand(inside, `The published ${name} leaves the range it must stay in.`);
  return Object.freeze([...x]);
}

/** The mechanism, with the coin worked out here: of all it says only epsilon, delta and the clip bound are believed. */
function readMechanism(x, dim, promise) {
  demand(isPlain(x), "The published mechanism is no mechanism.");
  demand(MECHANISMS.includes(x.name), "The published mechanism is unknown to this device.");
  demand(promise.mechanisms.includes(x.name), `The server asks for reports by ${x.name}, which were not promised.`);
  const epsilon = number(x.epsilon, "epsilon", SMALLEST_EPSILON, LARGEST_EPSILON);
  const delta = number(x.delta, "delta", 0, 0.5);
  const clip = number(x.clip, "clip", 1e-100, LARGEST);
  demandAtMost("epsilon", epsilon, promise.epsilon);
  demandAtMost("delta", delta, promise.delta);
  demandAtMost("clip", clip, promise.clip, ROUNDING);
  demand(x.dim === dim, `The published mechanism is not for ${dim} numbers.`);
  const most = x.name === "privunit" ? LARGEST_PAIRS : 1;
  const pairs = whole(x.pairs, "number of pairs", 1, most);
  demand(pairs * dim <= MOST_WORK, `${pairs} pairs of ${dim} numbers are too much: ${MOST_WORK} at most.`);
  const top = whole(x.top, "number of best directions", 1, pairs);
  const mechanism = { name: x.name, epsilon, delta, clip, dim, pairs, top, coin: 0n, sd: 0 };
  if (x.name === "gaussian") {
    mechanism.sd = number(x.sd, "standard deviation", Number.MIN_VALUE, Number.MAX_VALUE);
    demand(lossDelta(lossOf(mechanism), epsilon) <= delta, "The published noise is too small for epsilon and delta.");
  } else {
    demand(delta === 0 && x.sd === 0, `The published delta and sd are none of ${x.name}'s.`);
    mechanism.coin = fairCoin(epsilon, top, 2 * pairs - top);
  }
  return Object.freeze(mechanism);
}

/** A point of Theta, the ball of a centre and a radius, but for rounding. */
function readTheta(x, dim) {
  const centre = numbers(x.centre, "centre", dim, LARGEST_THETA);
  const radius = number(x.radius, "radius", Number.MIN_VALUE, LARGEST_THETA);
  const theta = numbers(x.theta, "theta", dim, Number.MAX_VALUE);
  const length = (v) => Math.sqrt(v.reduce((sum, value) => sum + value * value, 0));
  const distance = length(theta.map((value, i) => value - centre[i]));
  demand(distance <= radius * ROUNDING + 1e-12 * length(centre), "The published theta lies outside its ball.");
  return theta;
}

function readFeatures(x, dim) {
  demand(Array.isArray(x) && (x.length === 0 || x.length === dim), "The published features are not one a number.");
  const features = x.map((feature) => {
    demand(isPlain(feature) && isName(feature.name), "A published feature has no name.");
    if (Object.hasOwn(feature, "value")) return { name: feature.name, value: number(feature.value, "feature") };
    return { name: feature.name, low: number(feature.low, "feature"), high: number(feature.high, "feature") };
  });
  demand(new Set(features.map((f) => f.name)).size === features.length, "Two published features have the same name.");
  return Object.freeze(features);
}

function readLadder(x) {
  demand(Array.isArray(x) && x.every((p) => isNumber(p, 0, LARGEST)), "The published ladder is not a list of prices.");
  demand(
    x.every((p, i) => i === 0 || p > x[i - 1]),
    "The published ladder does not rise.",
  );
  return Object.freeze([...x]);
}

function readSegments(names) {
  demand(Array.isArray(names) && names.every(isName), "The published segments are no names.");
  demand(new Set(names).size === names.length, "Two published segments have the same name.");
  return names;
}

/** Ranges by segment; one segment without a name holds everyone where there are none. */
function readRanges(x, names, prices) {
  demand(isPlain(x.ranges), "The published ranges are not given by segment.");
  demand(
    Object.keys(x.ranges).every((name) => names.includes(name)),
    "A published range is for an unknown segment.",
  );
  const own = (name) => (Object.hasOwn(x.ranges, name) ? pair(x.ranges[name], "range of a segment", prices) : prices);
  return new Map(names.length ? names.map((name) => [name, own(name)]) : [[null, prices]]);
}

/** [low, high] with both ends moved into the range of a cut. */
const cutTo = (range, [least, most]) => range.map((p) => clamp(p, least, most));

/** The range of each segment in force: cut to the guardrails and, for experiments, to their range. */
function readTerms(x, segments, phase, ladder, prices) {
  const rails = x.guardrails;
  demand(isPlain(rails) && "low" in rails && "high" in rails, "The published guardrails are no guardrails.");
  const limits = pair([rails.low ?? prices[0], rails.high ?? prices[1]], "guardrails", prices);
  const experiments = pair(x.experiments, "range of experiments", prices);
  const ranges = readRanges(x, segments, prices);
  for (const [name, range] of ranges) {
    const cut = cutTo(range, limits);
    const terms = phase === "explore" ? cutTo(cut, experiments) : cut;
    const met = ladder.length === 0 || ladder.some((p) => p >= terms[0] && p <= terms[1]);
    demand(met, "The published ladder has no price in a range.");
    ranges.set(name, terms);
  }
  return ranges;
}

const CHECKED = Symbol("checked");

/** Published parameters that this device agrees to; made by readParams. */
export class Params {
  constructor(key, fields) {
    if (key !== CHECKED) throw new InvalidInput("Parameters are made by readParams, which checks them.");
    Object.freeze(Object.assign(this, fields));
  }
}

/**
 * Parameters from a published document, or a refusal of what is more than the promise, damaged or unknown.
 *
 * @param {object} document as published by GET /v1/products/{name}/params
 * @param {PrivacyPromise} promise
 */
export function readParams(document, promise) {
  if (!(promise instanceof PrivacyPromise)) throw new InvalidInput("A device needs a PrivacyPromise.");
  const x = document;
  demand(isPlain(x) && x.format === "hushprice params", "This is not a document of hushprice parameters.");
  demand(x.protocol === PROTOCOL, "The server speaks another protocol than this device.");
  demand(isName(x.product), "The document names no product.");
  demand(MODES.includes(x.mode), "The published mode is unknown to this device.");
  demand(FAMILIES.includes(x.family), "The published family of demand is unknown to this device.");
  demand(PHASES.includes(x.phase), "The published phase is unknown to this device.");
  demand(typeof x.learn === "boolean", "The document does not say whether to report.");
  demand(isPlain(x.score), "The document does not say what to report about.");
  const dim = whole(x.dim, "dim", 1, LARGEST_DIM);
  const [segments, features] = [readSegments(x.segments), readFeatures(x.features, dim)];
  demandCustomers(promise, x.family, segments, features);
  const prices = pair(x.prices, "range of prices", promise.prices);
  const ladder = readLadder(x.ladder);
  const fields = {
    product: x.product,
    mode: x.mode,
    version: whole(x.version, "version", 0, Number.MAX_SAFE_INTEGER),
    family: x.family,
    dim,
    prices,
    ladder,
    terms: readTerms(x, segments, x.phase, ladder, prices),
    cost: number(x.cost, "cost", 0, LARGEST),
    phase: x.phase,
    level: number(x.level, "level"),
    learn: x.learn,
    theta: readTheta(x, 2 * dim),
    shift: number(x.score.shift, "shift of the score"),
    factor: number(x.score.factor, "factor of the score"),
    mechanism: readMechanism(x.mechanism, 2 * dim, promise),
    features,
    document: structuredClone(x),
  };
  return new Params(CHECKED, fields);
}

// What a product never changes; nor does it change the names and constants of its features.
// prettier-ignore
const FIXED = [
  "product", "family", "dim", "prices", "experiments", "cost", "segments", "ranges", "centre", "radius", "score",
  "mechanism",
];

/** Whether parameters are those before, or of a later version. Refuses what has become another product. */
export function follows(params, before) {
  const text = (of, name) => JSON.stringify(of.document[name]);
  for (const name of FIXED) {
    demand(text(params, name) === text(before, name), `The server changed the ${name} of the product, which is fixed.`);
  }
  const [now, then] = [params, before].map(({ features }) => JSON.stringify(pinsOf(features)));
  demand(now === then, "The server changed the features of the product, which are fixed.");
  if (params.version !== before.version) return params.version > before.version;
  return Object.keys(before.document).every((name) => text(params, name) === text(before, name));
}

// -- what is done with them ------------------------------------------------------------------------------------------

function checked(params) {
  if (!(params instanceof Params)) throw new InvalidInput("Parameters must come from readParams, which checks them.");
  return params;
}

const PRIVATE = "What was given is not told, as it is private.";

function byName(params, given) {
  const { features } = params;
  if (!features.length) throw new InvalidInput("This product's features have no names: give the context as a list.");
  const asked = features.filter((f) => f.value === undefined).map((f) => f.name);
  if (Object.keys(given).length !== asked.length || !asked.every((name) => Object.hasOwn(given, name))) {
    throw new InvalidInput(`The context must give exactly ${asked.join(", ")} by name, and no constant.`);
  }
  return features.map((f) => (f.value === undefined ? given[f.name] : f.value));
}

/**
 * The context z as numbers, from a list or by the names of the features that are no constants, exactly. No value is
 * compared with anything that the server published: a list is taken as it is, and a constant is not given by name,
 * whatever its value.
 */
export function contextOf(params, given) {
  const isList = Array.isArray(given) || (ArrayBuffer.isView(given) && !(given instanceof DataView));
  const values = isList ? [...given] : isPlain(given) ? byName(checked(params), given) : [];
  if (values.length !== checked(params).dim || !values.every((x) => isNumber(x, -LARGEST, LARGEST))) {
    throw new InvalidInput(`A context is ${params.dim} finite numbers below ${LARGEST} in size. ${PRIVATE}`);
  }
  return Float64Array.from(values);
}

/** [low, high] for a customer of this segment (none where the product has none). */
export function rangeOf(params, segment = null) {
  const range = checked(params).terms.get(segment ?? null);
  if (range) return range;
  const names = [...params.terms.keys()].filter((name) => name !== null);
  const told = names.length ? `The customer's segment must be one of ${names.join(", ")}.` : "There are no segments.";
  throw new InvalidInput(`${told} ${PRIVATE}`);
}

/** The shop's own price, where the server learns from it (mode shadow) and it lies in the range of this customer. */
function ownPrice(params, price, low, high) {
  if (params.mode !== "shadow") throw new InvalidInput("A price of one's own can be quoted in mode shadow only.");
  if (!isNumber(price, low, high)) {
    // which range that is would tell the customer's segment
    throw new InvalidInput(`A price of one's own must lie within the range of prices for this customer. ${PRIVATE}`);
  }
  return price;
}

/**
 * The price for a context z. `uniform`, in [0, 1), decides a price experiment (phase explore). `price` is the shop's
 * own one, in mode shadow: it is quoted if it lies in the range that a quote would have.
 *
 * @param {Params} params
 * @param {ArrayLike<number> | Record<string, number>} z
 */
export function quote(params, z, { segment = null, cost = null, uniform = 0, price = null } = {}) {
  const context = contextOf(params, z);
  const [low, high] = rangeOf(params, segment);
  const own = cost ?? params.cost;
  if (!isNumber(own, 0, LARGEST)) throw new InvalidInput(`A cost is a number from 0 to ${LARGEST}. ${PRIVATE}`);
  if (!isNumber(uniform, 0, 1) || uniform === 1) throw new InvalidInput("uniform must be a number in [0, 1).");
  if (price !== null) return ownPrice(params, price, low, high);
  const { phase, family, level, ladder } = params;
  const [a, b] = utility(context, params.theta);
  return quoteOnTerms(phase, family, a, b, level, uniform, own, low, high, ladder);
}

/** Whether demand of this family can be y. */
function possible(family, y) {
  if (family === "logistic") return y === 0 || y === 1;
  if (family === "poisson") return Number.isInteger(y) && y >= 0;
  return typeof y === "number" && Number.isFinite(y);
}

/** The outcome as a number; true and false for sold and not sold. */
export function outcomeOf(params, y) {
  const value = typeof y === "boolean" ? Number(y) : y;
  if (!possible(checked(params).family, value)) {
    throw new InvalidInput(`The outcome is not possible in ${params.family} demand. ${PRIVATE}`);
  }
  return value;
}

/** Random words that one report takes. */
export function wordsNeeded(params) {
  const { name, dim, pairs } = checked(params).mechanism;
  if (name === "gaussian") return dim;
  return pairs === 1 ? 3 : 4;
}

/**
 * The report of a sale: all that leaves the device of it. `words` are random, and used once.
 *
 * @param {Params} params those the price was quoted from
 * @returns {{ seed: string, index: number } | { grid: number[] }}
 */
export function report(params, z, price, y, words) {
  const context = contextOf(params, z);
  const outcome = outcomeOf(params, y);
  if (!isNumber(price, ...params.prices)) throw new InvalidInput(`The price leaves the range of prices. ${PRIVATE}`);
  if (words.length !== wordsNeeded(params)) throw new InvalidInput(`A report takes ${wordsNeeded(params)} words.`);
  const { family, theta, shift, factor, mechanism } = params;
  return privatize(mechanism, score(family, theta, context, price, outcome, shift, factor), words);
}
