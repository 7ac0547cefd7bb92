/** What a device agrees to at most, whatever a server publishes. */

import { BrokenPromise, InvalidInput, only } from "./errors.js";
import { FAMILIES } from "./kernels.js";

export const MECHANISMS = Object.freeze(["l2-ball", "privunit", "gaussian"]);
const TERMS = ["epsilon", "delta", "clip", "mechanisms", "prices", "family", "segments", "features"];
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

/** A feature as a promise names it: its name, or [name, value] of a constant. */
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

/** The names and constants of published features: what a product never changes of them. */
export const pinsOf = (features) => features.map(pinned);

/** A number asked for and one promised, in six digits, or in all of them if six do not tell them apart. */
function apart(asked, promised) {
  const short = [asked, promised].map((x) => String(Number(x.toPrecision(6))));
  return short[0] !== short[1] ? short : [String(asked), String(promised)];
}

/**
 * What this device agrees to at most, in one report, whatever the server asks for.
 *
 * epsilon: no report may be more than e^epsilon times as likely from one customer as from another; delta: but for this
 * chance (Gaussian noise only); clip: bound on the length of what is reported about; mechanisms: those that may be
 * used; prices: [low, high] that no price may leave, if given.
 *
 * family, segments, features: which outcomes, segments and names exist. A server that says otherwise is refused before
 * anything of a customer is looked at, because it could otherwise choose them so that some customers are refused, and
 * learn from their silence who they are. Without features (any are taken) the first parameters pin them and the
 * dimension, for as long as the device lives: give them where contexts may differ in length or names.
 */
export class PrivacyPromise {
  constructor(options = {}) {
    only(options, TERMS, "A promise");
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
   * Exactly what a params document asks for. To be made once and kept (it survives JSON): a device that makes its
   * promise from whatever the server publishes next promises nothing.
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

/** Refuse more than was promised of one number. */
export function demandAtMost(name, asked, promised, tolerance = 1) {
  const [told, given] = apart(asked, promised);
  demand(asked <= promised * tolerance, `The server asks for ${name} = ${told}; ${given} is promised.`);
}

/** Refuse a product of other customers than promised: other outcomes, segments or features. */
export function demandCustomers(promise, family, segments, features) {
  const listed = (names) => names.join(", ") || "none";
  demand(family === promise.family, `The server's demand is ${family}; ${promise.family} is promised (family).`);
  const same = segments.length === promise.segments.length && promise.segments.every((name) => segments.includes(name));
  demand(same, `The server's segments are not those promised (segments): ${listed(promise.segments)}.`);
  if (promise.features === null) return;
  const names = listed(promise.features.map(nameOf));
  const kept = JSON.stringify(pinsOf(features)) === JSON.stringify(promise.features);
  demand(kept, `The server's features are not those promised (features): ${names}.`);
}
