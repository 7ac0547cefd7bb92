/** The promise of a device to its customer: the most that a server may ask for. */

import { BrokenPromise, InvalidInput, only } from "./errors.js";
import { FAMILIES } from "./kernels.js";

export const MECHANISMS = Object.freeze(["l2-ball", "privunit", "gaussian"]);
const OPTIONS = ["epsilon", "delta", "clip", "mechanisms", "prices", "family", "segments", "features"];
export const LARGEST = 1e12; // of prices, costs, contexts
export const SMALLEST_EPSILON = 1e-6;
export const LARGEST_EPSILON = 30;

export const isNumber = (x, low, high) => typeof x === "number" && x >= low && x <= high && Number.isFinite(x);
export const isPlain = (x) => typeof x === "object" && x !== null && !Array.isArray(x);
export const isName = (x) => typeof x === "string" && x.length > 0 && x.length <= 200;
export const isPair = (x) =>
  Array.isArray(x) && x.length === 2 && x.every((p) => isNumber(p, 0, LARGEST)) && x[0] <= x[1];
const areNames = (x) => Array.isArray(x) && x.every(isName) && new Set(x).size === x.length;

export function demand(holds, text) {
  if (!holds) throw new BrokenPromise(`${text} No price and no report is made from these parameters.`);
}

function agreed(name, value, low, high) {
  if (!isNumber(value, low, high)) throw new InvalidInput(`${name} must be a number from ${low} to ${high}.`);
  return value;
}

/** A feature in the form of a promise: its name, or [name, value] of a constant. */
const pinned = (feature) => (Object.hasOwn(feature, "value") ? [feature.name, feature.value] : feature.name);
const nameOf = (pin) => (Array.isArray(pin) ? pin[0] : pin);

function isPin(x) {
  if (!Array.isArray(x)) return isName(x);
  return x.length === 2 && isName(x[0]) && isNumber(x[1], -LARGEST, LARGEST);
}

function readPins(x) {
  const good = Array.isArray(x) && x.length > 0 && x.every(isPin) && areNames(x.map(nameOf));
  if (!good) {
    throw new InvalidInput('features must be names in order, constants with a value: [["constant", 1], "loyalty"].');
  }
  return Object.freeze(x.map((pin) => (Array.isArray(pin) ? Object.freeze([...pin]) : pin)));
}

/** The names and constants of published features, which a product never changes. */
export const pinsOf = (features) => features.map(pinned);

/** Two numbers in six digits, or in all digits if six do not distinguish them. */
function distinct(requested, promised) {
  const short = [requested, promised].map((x) => String(Number(x.toPrecision(6))));
  return short[0] !== short[1] ? short : [String(requested), String(promised)];
}

/**
 * Limits that the author of the shop's app fixes on the device and shows to the customer.
 *
 * epsilon: no report may be more than e^epsilon times as likely from one customer as from another.
 * delta: probability with which that may fail (Gaussian noise only). Default: 0.
 * clip: largest bound on the length of a score.
 * mechanisms: names of those that may be used. Default: all.
 * prices: range [low, high] that no price may leave. Default: any price.
 * family: family of demand, and so the possible outcomes. Default: "logistic".
 * segments: the segments of customers. Default: none.
 * features: the entries of the context in order: names, and constants as [name, value]. Default: the first parameters
 *     pin them and the dimension for the lifetime of the device. Set them if contexts may differ in length or names.
 *
 * A document with another family, other segments or other features is refused before any data of a customer is used.
 * Otherwise a server could choose them so that some customers are refused, and recognise these by their silence.
 */
export class PrivacyPromise {
  constructor(options = {}) {
    only(options, OPTIONS, "A promise");
    const { epsilon, delta = 0, clip, mechanisms = MECHANISMS, prices = null } = options;
    const { family = "logistic", segments = [], features = null } = options;
    this.epsilon = agreed("epsilon", epsilon, SMALLEST_EPSILON, LARGEST_EPSILON);
    this.delta = agreed("delta", delta, 0, 0.5);
    this.clip = agreed("clip", clip, 1e-100, LARGEST);
    if (!Array.isArray(mechanisms) || !mechanisms.length || !mechanisms.every((name) => MECHANISMS.includes(name))) {
      throw new InvalidInput(`mechanisms must be a list of some of ${MECHANISMS.join(", ")}.`);
    }
    if (prices !== null && !isPair(prices)) throw new InvalidInput("prices must be [low, high].");
    if (!FAMILIES.includes(family)) throw new InvalidInput(`family must be one of ${FAMILIES.join(", ")}.`);
    if (!areNames(segments)) throw new InvalidInput("segments must be a list of different names.");
    this.mechanisms = Object.freeze([...mechanisms]);
    this.prices = prices === null ? null : Object.freeze([...prices]);
    this.family = family;
    this.segments = Object.freeze([...segments].sort());
    this.features = features === null ? null : readPins(features);
    Object.freeze(this);
  }

  /**
   * The promise that allows exactly what a params document asks for. Review it once and store it (it survives JSON): a
   * device that makes its promise from whatever the server publishes next promises nothing.
   */
  static of(document) {
    try {
      const { mechanism, prices, family, segments, features } = document;
      const { name, epsilon, delta, clip } = mechanism;
      const pins = features.length === 0 ? null : pinsOf(features);
      if ([delta, prices, family, segments].includes(undefined)) throw new InvalidInput("Something is missing.");
      return new PrivacyPromise({ epsilon, delta, clip, mechanisms: [name], prices, family, segments, features: pins });
    } catch {
      throw new BrokenPromise("This is no params document that a promise could be made from.");
    }
  }
}

/** Refuse a number above the promised one. */
export function demandAtMost(name, requested, promised, tolerance = 1) {
  const [more, limit] = distinct(requested, promised);
  demand(requested <= promised * tolerance, `The server asks for ${name} = ${more}; ${limit} is promised.`);
}

/** Refuse other outcomes, segments or features than promised. */
export function demandCustomers(promise, family, segments, features) {
  const listed = (names) => names.join(", ") || "none";
  demand(family === promise.family, `The server's demand is ${family}; ${promise.family} is promised (family).`);
  const same = segments.length === promise.segments.length && promise.segments.every((name) => segments.includes(name));
  demand(same, `The server's segments are not those promised (segments): ${listed(promise.segments)}.`);
  if (promise.features === null) return;
  const names = listed(promise.features.map(nameOf));
  const equal = JSON.stringify(pinsOf(features)) === JSON.stringify(promise.features);
  demand(equal, `The server's features are not those promised (features): ${names}.`);
}
