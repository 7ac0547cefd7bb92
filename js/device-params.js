/** What a device agrees to at most, and published parameters that were checked against it. */

import { BrokenPromise, InvalidInput } from "./device-errors.js";
import { fairCoin, lossDelta, lossOf } from "./device-guarantee.js";
import { FAMILIES, clamp, privatize, quoteOnTerms, score, utility } from "./device-kernels.js";

export const PROTOCOL = 1;
export const MECHANISMS = Object.freeze(["l2-ball", "privunit", "gaussian"]);
export const PHASES = Object.freeze(["explore", "exploit", "fixed"]);
const MODES = ["live", "shadow", "frozen"];

const LARGEST = 1e12; // of prices, costs, contexts
const LARGEST_THETA = 1e6; // of the centre and the radius of Theta
const LARGEST_PAIRS = 1024;
const LARGEST_DIM = 1000;
const SMALLEST_EPSILON = 1e-6;
const LARGEST_EPSILON = 30;
const ROUNDING = 1 + 1e-9; // of a clip bound, which is derived by a square root, and of a point on the edge of Theta

const isNumber = (x, low, high) => typeof x === "number" && x >= low && x <= high && Number.isFinite(x);
const isPlain = (x) => typeof x === "object" && x !== null && !Array.isArray(x);
const isName = (x) => typeof x === "string" && x.length > 0 && x.length <= 200;
const isPair = (x) => Array.isArray(x) && x.length === 2 && x.every((p) => isNumber(p, 0, LARGEST)) && x[0] <= x[1];

// -- the promise ------------------------------------------------------------------------------------------------------

function agreed(name, value, low, high) {
  if (!isNumber(value, low, high)) throw new InvalidInput(`${name} must be a number from ${low} to ${high}.`);
  return value;
}

/**
 * What this device agrees to at most, in one report, whatever the server asks for.
 *
 * epsilon: no report may be more than e^epsilon times as likely from one customer as from another; delta: but for this
 * chance (Gaussian noise only); clip: bound on the length of what is reported about; mechanisms: those that may be
 * used; prices: [low, high] that no price may leave, if given.
 */
export class PrivacyPromise {
  constructor({ epsilon, delta = 0, clip, mechanisms = MECHANISMS, prices = null } = {}) {
    this.epsilon = agreed("epsilon", epsilon, SMALLEST_EPSILON, LARGEST_EPSILON);
    this.delta = agreed("delta", delta, 0, 0.5);
    this.clip = agreed("clip", clip, 1e-100, LARGEST);
    if (!Array.isArray(mechanisms) || !mechanisms.length || !mechanisms.every((name) => MECHANISMS.includes(name))) {
      throw new InvalidInput(`mechanisms must be a list of some of ${MECHANISMS.join(", ")}.`);
    }
    if (prices !== null && !isPair(prices)) throw new InvalidInput("prices must be [low, high].");
    this.mechanisms = Object.freeze([...mechanisms]);
    this.prices = prices === null ? null : Object.freeze([...prices]);
    Object.freeze(this);
  }
}

// -- reading a document ----------------------------------------------------------------------------------------------

function demand(holds, text) {
  if (!holds) throw new BrokenPromise(`${text} No price and no report is made from these parameters.`);
}

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
  demand(epsilon <= promise.epsilon, `The server asks for epsilon = ${epsilon}, this device gives ${promise.epsilon}.`);
  demand(delta <= promise.delta, `The server asks for delta = ${delta}, this device gives ${promise.delta}.`);
  demand(clip <= promise.clip * ROUNDING, `The server asks for a clip of ${clip}, this device gives ${promise.clip}.`);
  demand(x.dim === dim, `The published mechanism is not for ${dim} numbers.`);
  const most = x.name === "privunit" ? LARGEST_PAIRS : 1;
  const pairs = whole(x.pairs, "number of pairs", 1, most);
  const top = whole(x.top, "number of best directions", 1, pairs);
  const checked = { name: x.name, epsilon, delta, clip, dim, pairs, top, coin: 0n, sd: 0 };
  if (x.name === "gaussian") {
    checked.sd = number(x.sd, "standard deviation", Number.MIN_VALUE, Number.MAX_VALUE);
    demand(lossDelta(lossOf(checked), epsilon) <= delta, "The published noise is too small for epsilon and delta.");
  } else {
    demand(delta === 0 && x.sd === 0, `The published delta and sd are none of ${x.name}'s.`);
    checked.coin = fairCoin(epsilon, top, 2 * pairs - top);
  }
  return Object.freeze(checked);
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
  demand(x.every((p, i) => i === 0 || p > x[i - 1]), "The published ladder does not rise.");
  return Object.freeze([...x]);
}

/** Ranges by segment; one segment without a name holds everyone where there are none. */
function readRanges(x, prices) {
  const names = x.segments;
  demand(Array.isArray(names) && names.every(isName), "The published segments are no names.");
  demand(new Set(names).size === names.length, "Two published segments have the same name.");
  demand(isPlain(x.ranges), "The published ranges are not given by segment.");
  demand(Object.keys(x.ranges).every((name) => names.includes(name)), "A published range is for an unknown segment.");
  const own = (name) => (Object.hasOwn(x.ranges, name) ? pair(x.ranges[name], "range of a segment", prices) : prices);
  return new Map(names.length ? names.map((name) => [name, own(name)]) : [[null, prices]]);
}

/** [low, high] with both ends moved into the range of a cut. */
const cutTo = (range, [least, most]) => range.map((p) => clamp(p, least, most));

/** The range of each segment in force: cut to the guardrails and, for experiments, to their range. */
function readTerms(x, phase, ladder, prices) {
  const rails = x.guardrails;
  demand(isPlain(rails) && "low" in rails && "high" in rails, "The published guardrails are no guardrails.");
  const limits = pair([rails.low ?? prices[0], rails.high ?? prices[1]], "guardrails", prices);
  const experiments = pair(x.experiments, "range of experiments", prices);
  const ranges = readRanges(x, prices);
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
    terms: readTerms(x, x.phase, ladder, prices),
    cost: number(x.cost, "cost", 0, LARGEST),
    phase: x.phase,
    level: number(x.level, "level"),
    learn: x.learn,
    theta: readTheta(x, 2 * dim),
    shift: number(x.score.shift, "shift of the score"),
    factor: number(x.score.factor, "factor of the score"),
    mechanism: readMechanism(x.mechanism, 2 * dim, promise),
    features: readFeatures(x.features, dim),
    document: structuredClone(x),
  };
  return new Params(CHECKED, fields);
}

// What a product never changes.
// prettier-ignore
const FIXED = [
  "product", "family", "dim", "prices", "experiments", "cost", "segments", "ranges", "centre", "radius", "score",
  "mechanism", "features",
];

/** Whether parameters are not of an earlier version than those before. Refuses what has become another product. */
export function follows(params, before) {
  const text = (of, name) => JSON.stringify(of.document[name]);
  for (const name of FIXED) {
    demand(text(params, name) === text(before, name), `The server changed the ${name} of the product, which is fixed.`);
  }
  const one = params.version === before.version;
  const same = Object.keys(before.document).every((name) => text(params, name) === text(before, name));
  demand(!one || same, "The server published two different documents as one version.");
  return params.version >= before.version;
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
  const constant = features.filter((f) => f.value !== undefined);
  const known = Object.keys(given).every((name) => features.some((f) => f.name === name));
  if (!known || !asked.every((name) => Object.hasOwn(given, name))) {
    throw new InvalidInput(`The context must give exactly ${asked.join(", ")} by name.`);
  }
  if (!constant.every((f) => !Object.hasOwn(given, f.name) || given[f.name] === f.value)) {
    throw new InvalidInput("A constant feature is given with another value.");
  }
  return features.map((f) => (f.value === undefined ? given[f.name] : f.value));
}

/** The context z as numbers, from a list or by the names of the features; constants may be left out by name. */
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

/** The shop's own price, where the server learns from it (mode shadow) and it lies in the range. */
function ownPrice(params, price, low, high) {
  if (params.mode !== "shadow") throw new InvalidInput("A price of one's own can be quoted in mode shadow only.");
  if (!isNumber(price, low, high)) throw new InvalidInput(`A price of one's own must lie in [${low}, ${high}].`);
  return price;
}

/**
 * The price for a context z. `uniform`, in [0, 1), decides a price experiment (phase explore).
 *
 * @param {Params} params
 * @param {ArrayLike<number> | Record<string, number>} z
 */
export function quote(params, z, { segment = null, cost = null, uniform = 0, price = null } = {}) {
  const context = contextOf(params, z);
  const [low, high] = rangeOf(params, segment);
  if (price !== null) return ownPrice(params, price, low, high);
  const own = cost ?? params.cost;
  if (!isNumber(own, 0, LARGEST)) throw new InvalidInput(`A cost is a number from 0 to ${LARGEST}. ${PRIVATE}`);
  if (!isNumber(uniform, 0, 1) || uniform === 1) throw new InvalidInput("uniform must be a number in [0, 1).");
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
