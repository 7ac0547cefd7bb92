/** Published parameters: reading them, checking them against the promise, and pricing and reporting by them. */

import { InvalidInput } from "./errors.js";
import { fairCoin, lossDelta, lossOf } from "./guarantee.js";
import { FAMILIES, clamp, possible, privatize, quoteOnTerms, score, utility } from "./kernels.js";
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
const LONGEST_LIST = 10000; // segments, or prices of a ladder
const MAX_WORK = 1 << 17; // pairs times dim that a server may ask for
const TOLERANCE = 1 + 1e-9; // for a clip bound, which is computed with a square root, and for points on Theta's edge

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

/** The mechanism, with the coin computed here: privacy relies only on epsilon, delta and the clip bound. */
function readMechanism(x, dim, promise) {
  demand(isPlain(x), "The published mechanism is no mechanism.");
  demand(MECHANISMS.includes(x.name), "The published mechanism is unknown to this device.");
  demand(promise.mechanisms.includes(x.name), `The server asks for reports by ${x.name}, which were not promised.`);
  const epsilon = number(x.epsilon, "epsilon", SMALLEST_EPSILON, LARGEST_EPSILON);
  const delta = number(x.delta, "delta", 0, 0.5);
  const clip = number(x.clip, "clip", 1e-100, LARGEST);
  demandAtMost("epsilon", epsilon, promise.epsilon);
  demandAtMost("delta", delta, promise.delta);
  demandAtMost("clip", clip, promise.clip, TOLERANCE);
  demand(x.dim === dim, `The published mechanism is not for ${dim} numbers.`);
  const most = x.name === "privunit" ? LARGEST_PAIRS : 1;
  const pairs = whole(x.pairs, "number of pairs", 1, most);
  demand(pairs * dim <= MAX_WORK, `${pairs} pairs of ${dim} numbers are too much: ${MAX_WORK} at most.`);
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

/** The estimate, a point of the ball Theta up to rounding. */
function readTheta(x, dim) {
  const centre = numbers(x.centre, "centre", dim, LARGEST_THETA);
  const radius = number(x.radius, "radius", Number.MIN_VALUE, LARGEST_THETA);
  const theta = numbers(x.theta, "theta", dim, Number.MAX_VALUE);
  const length = (v) => Math.sqrt(v.reduce((sum, value) => sum + value * value, 0));
  const distance = length(theta.map((value, i) => value - centre[i]));
  demand(distance <= radius * TOLERANCE + 1e-12 * length(centre), "The published theta lies outside its ball.");
  return theta;
}

function readFeatures(x, dim) {
  demand(Array.isArray(x) && (x.length === 0 || x.length === dim), "The number of published features is not dim.");
  const features = x.map((feature) => {
    demand(isPlain(feature) && isName(feature.name), "A published feature has no name.");
    const keys = Object.keys(feature).sort().join(" ");
    demand(keys === "name value" || keys === "high low name", "A published feature has other keys than it may have.");
    if (keys === "name value") return { name: feature.name, value: number(feature.value, "feature") };
    return { name: feature.name, low: number(feature.low, "feature"), high: number(feature.high, "feature") };
  });
  demand(new Set(features.map((f) => f.name)).size === features.length, "Two published features have the same name.");
  return Object.freeze(features);
}

function readLadder(x) {
  const isList = Array.isArray(x) && x.length <= LONGEST_LIST;
  demand(isList && x.every((p) => isNumber(p, 0, LARGEST)), "The published ladder is not a list of prices.");
  demand(
    x.every((p, i) => i === 0 || p > x[i - 1]),
    "The published ladder does not rise.",
  );
  return Object.freeze([...x]);
}

function readSegments(names) {
  const isList = Array.isArray(names) && names.length <= LONGEST_LIST;
  demand(isList && names.every(isName), "The published segments are no names.");
  demand(new Set(names).size === names.length, "Two published segments have the same name.");
  return names;
}

/** Ranges by segment; without segments, one range under null. */
function readRanges(x, names, prices) {
  demand(isPlain(x.ranges), "The published ranges are not given by segment.");
  demand(
    Object.keys(x.ranges).every((name) => names.includes(name)),
    "A published range is for an unknown segment.",
  );
  const own = (name) => (Object.hasOwn(x.ranges, name) ? pair(x.ranges[name], "range of a segment", prices) : prices);
  return new Map(names.length ? names.map((name) => [name, own(name)]) : [[null, prices]]);
}

/** A range with both ends clipped to another range. */
const cutTo = (range, [least, most]) => range.map((p) => clamp(p, least, most));

/** The current range of each segment: clipped to the guardrails and, for experiments, to their range. */
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

/** Published parameters that this device agrees to, made by readParams. */
export class Params {
  constructor(key, fields) {
    if (key !== CHECKED) throw new InvalidInput("Parameters are made by readParams, which checks them.");
    Object.freeze(Object.assign(this, fields));
  }
}

/**
 * Read the parameters in a published document. It throws BrokenPromise for a document that asks for more than the
 * promise, is damaged or is unknown.
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
  demand(typeof x.currency === "string", "The published currency is no text.");
  number(x.baseline, "baseline", 0, LARGEST);
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

// The fields that a product never changes; the names and constants of its features never change either.
// prettier-ignore
const FIXED_FIELDS = [
  "product", "family", "dim", "prices", "experiments", "cost", "segments", "ranges", "centre", "radius", "score",
  "mechanism",
];

/** Whether parameters equal earlier ones or have a later version. It throws if the product has changed. */
export function follows(params, before) {
  const text = (of, name) => JSON.stringify(of.document[name]);
  for (const name of FIXED_FIELDS) {
    demand(text(params, name) === text(before, name), `The server changed the ${name} of the product, which is fixed.`);
  }
  const [now, then] = [params, before].map(({ features }) => JSON.stringify(pinsOf(features)));
  demand(now === then, "The server changed the features of the product, which are fixed.");
  if (params.version !== before.version) return params.version > before.version;
  return Object.keys(before.document).every((name) => text(params, name) === text(before, name));
}

// -- pricing and reporting -------------------------------------------------------------------------------------------

function checked(params) {
  if (!(params instanceof Params)) throw new InvalidInput("Parameters must come from readParams, which checks them.");
  return params;
}

const PRIVATE = "The value is private and is not repeated here.";

function byName(params, values) {
  const { features } = params;
  if (!features.length) throw new InvalidInput("This product's features have no names: give the context as a list.");
  const names = features.filter((f) => f.value === undefined).map((f) => f.name);
  if (Object.keys(values).length !== names.length || !names.every((name) => Object.hasOwn(values, name))) {
    throw new InvalidInput(`The context must give exactly ${names.join(", ")} by name, and no constant.`);
  }
  return features.map((f) => (f.value === undefined ? values[f.name] : f.value));
}

/**
 * The context z as numbers, from a list of all entries, or from exactly the features that are not constants by name. No
 * value is compared with anything that the server published, so that a refusal reveals nothing about the customer.
 */
export function contextOf(params, z) {
  const isList = Array.isArray(z) || (ArrayBuffer.isView(z) && !(z instanceof DataView));
  const values = isList ? [...z] : isPlain(z) ? byName(checked(params), z) : [];
  if (values.length !== checked(params).dim || !values.every((x) => isNumber(x, -LARGEST, LARGEST))) {
    throw new InvalidInput(`A context is ${params.dim} finite numbers below ${LARGEST} in size. ${PRIVATE}`);
  }
  return Float64Array.from(values);
}

/** The range [low, high] for a customer of this segment, null if the product has no segments. */
export function rangeOf(params, segment = null) {
  const range = checked(params).terms.get(segment ?? null);
  if (range) return range;
  const names = [...params.terms.keys()].filter((name) => name !== null);
  const text = names.length ? `The customer's segment must be one of ${names.join(", ")}.` : "There are no segments.";
  throw new InvalidInput(`${text} ${PRIVATE}`);
}

/** The shop's own price, which is allowed in mode shadow within the range of prices for this customer. */
function ownPrice(params, price, low, high) {
  if (params.mode !== "shadow") throw new InvalidInput("A price of one's own can be quoted in mode shadow only.");
  if (!isNumber(price, low, high)) {
    // the bounds would reveal the customer's segment
    throw new InvalidInput(`A price of one's own must lie within the range of prices for this customer. ${PRIVATE}`);
  }
  return price;
}

/**
 * The price for a context z. `uniform`, a random number in [0, 1), determines the price of an experiment (phase explore).
 * `price` is the shop's own price, in mode shadow only: it is returned if it lies in the range of quotes.
 *
 * @param {Params} params
 * @param {ArrayLike<number> | Record<string, number>} z
 */
export function quote(params, z, { segment = null, cost = null, uniform = 0, price = null } = {}) {
  const context = contextOf(params, z);
  const [low, high] = rangeOf(params, segment);
  const unitCost = cost ?? params.cost;
  if (!isNumber(unitCost, 0, LARGEST)) throw new InvalidInput(`A cost is a number from 0 to ${LARGEST}. ${PRIVATE}`);
  if (!isNumber(uniform, 0, 1) || uniform === 1) throw new InvalidInput("uniform must be a number in [0, 1).");
  if (price !== null) return ownPrice(params, price, low, high);
  const { phase, family, level, ladder } = params;
  const [a, b] = utility(context, params.theta);
  return quoteOnTerms(phase, family, a, b, level, uniform, unitCost, low, high, ladder);
}

/** The outcome as a number; true means sold, false not sold. */
export function outcomeOf(params, y) {
  const value = typeof y === "boolean" ? Number(y) : y;
  if (!possible(checked(params).family, value)) {
    throw new InvalidInput(`The outcome is not possible in ${params.family} demand. ${PRIVATE}`);
  }
  return value;
}

/** Number of random 64-bit words per report. */
export function wordsNeeded(params) {
  const { name, dim, pairs } = checked(params).mechanism;
  if (name === "gaussian") return dim;
  return pairs === 1 ? 3 : 4;
}

/**
 * The report of a sale: all that leaves the device. `words` must be random and used only once.
 *
 * @param {Params} params the parameters that the price was computed from
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
