/**
 * Numbers with the same bits in every language: random words, Philox, exp, log, Wright omega, the normal quantile, Phi.
 *
 * All floating point is IEEE double with + - * / and the square root, in the order written. A word of 64 bits is a
 * BigInt where it is handed around, and two numbers of 32 bits (high, low) where many are worked with.
 */

import { InvalidInput } from "./errors.js";

// -- words: whole numbers of 64 bits --------------------------------------------------------------------------------

const TWO32 = 4294967296;
const ULP = 1.1102230246251565e-16; // 2^-53

// Node 18 has the browsers' generator, but not under their name.
const source = globalThis.crypto ?? (await import("node:crypto")).webcrypto;

/** The operating system's random words: what every price experiment and report outside tests is made from. */
export class SystemWords {
  /** The next n words; what for does not matter. */
  draw(n) {
    const halves = source.getRandomValues(new Uint32Array(2 * n));
    return Array.from({ length: n }, (_, i) => joined(halves[2 * i], halves[2 * i + 1]));
  }
}

const PURPOSES = ["price", "report", "id"];

function* stream(seed, k) {
  for (let i = 0n; ; i++) yield* philox([seed, BigInt(k)], [i, 0n, 0n, 0n]);
}

/**
 * Words that anyone who knows the seed can recompute, and with them the customer's data. For tests alone. A stream for
 * each purpose (price, report, id) comes from the seed, or is given: new UnsafeWords(7n, { report: words }).
 */
export class UnsafeWords {
  #streams;

  constructor(seed = 0n, streams = {}) {
    const given = (name, k) => (streams[name] ?? stream(BigInt(seed), k))[Symbol.iterator]();
    this.#streams = new Map(PURPOSES.map((name, k) => [name, given(name, k)]));
  }

  draw(n, purpose) {
    return Array.from({ length: n }, () => {
      const { value, done } = this.#streams.get(purpose).next();
      if (done) throw new InvalidInput(`The words given for each ${purpose} are used up.`);
      return BigInt(value);
    });
  }
}

/** A uniform number in [0, 1) from a word: (word >> 11) 2^-53. */
export function uniformOf(word) {
  return Number(word >> 11n) * ULP;
}

export const highHalf = (word) => Number(word >> 32n);
export const lowHalf = (word) => Number(word & 0xffffffffn);
const joined = (high, low) => (BigInt(high) << 32n) | BigInt(low);
export const hex = (word) => word.toString(16).padStart(16, "0");

/**
 * The upper 32 bits of the product of two numbers of 32 bits, of which the lower ones are given: a * b is off by at
 * most 2^10 as a double, so that (a * b - low) / 2^32 is off by less than 2^-20 and rounds to what it should be.
 */
const upper = (a, b, low) => Math.floor((a * b - low) / TWO32 + 0.5);

const PRODUCT = new Uint32Array(4); // of the last call of multiply, most significant first; it keeps the lower 32 bits

/** The 128-bit product of (a1, a0) and (b1, b0), into PRODUCT. */
function multiply(a1, a0, b1, b0) {
  const l00 = Math.imul(a0, b0) >>> 0;
  const l01 = Math.imul(a0, b1) >>> 0;
  const l10 = Math.imul(a1, b0) >>> 0;
  const l11 = Math.imul(a1, b1) >>> 0;
  const s1 = upper(a0, b0, l00) + l01 + l10;
  const s2 = upper(a0, b1, l01) + upper(a1, b0, l10) + l11 + Math.floor(s1 / TWO32);
  PRODUCT[0] = upper(a1, b1, l11) + Math.floor(s2 / TWO32);
  PRODUCT[1] = s2;
  PRODUCT[2] = s1;
  PRODUCT[3] = l00;
}

/**
 * Philox4x64-10 (Salmon et al. 2011) in place: `block` holds the counter (c0, c1, c2, c3), then the four words. Ten
 * rounds
 *
 *     (c0, c1, c2, c3) = (hi(M1 c2) ^ c1 ^ k0, lo(M1 c2), hi(M0 c0) ^ c3 ^ k1, lo(M0 c0)),   k0 += W0, k1 += W1
 */
function philoxBlock(k0h, k0l, k1h, k1l, block) {
  let c0h = block[0];
  let c0l = block[1];
  let c1h = block[2];
  let c1l = block[3];
  let c2h = block[4];
  let c2l = block[5];
  let c3h = block[6];
  let c3l = block[7];
  for (let round = 0; round < 10; round++) {
    multiply(0xca5a8263, 0x95121157, c2h, c2l);
    const nh = PRODUCT[0] ^ c1h ^ k0h;
    const nl = PRODUCT[1] ^ c1l ^ k0l;
    c1h = PRODUCT[2];
    c1l = PRODUCT[3];
    multiply(0xd2e7470e, 0xe14c6c93, c0h, c0l);
    c2h = (PRODUCT[0] ^ c3h ^ k1h) >>> 0;
    c2l = (PRODUCT[1] ^ c3l ^ k1l) >>> 0;
    c3h = PRODUCT[2];
    c3l = PRODUCT[3];
    c0h = nh >>> 0;
    c0l = nl >>> 0;
    const s0 = k0l + 0x7f4a7c15;
    k0h = (k0h + 0x9e3779b9 + (s0 >= TWO32 ? 1 : 0)) >>> 0;
    k0l = s0 >>> 0;
    const s1 = k1l + 0x84caa73b;
    k1h = (k1h + 0xbb67ae85 + (s1 >= TWO32 ? 1 : 0)) >>> 0;
    k1l = s1 >>> 0;
  }
  block[0] = c0h;
  block[1] = c0l;
  block[2] = c1h;
  block[3] = c1l;
  block[4] = c2h;
  block[5] = c2l;
  block[6] = c3h;
  block[7] = c3l;
}

/** Four random words from a key of two words and a counter of four. */
export function philox(key, counter) {
  const block = Uint32Array.from(counter.flatMap((word) => [highHalf(word), lowHalf(word)]));
  philoxBlock(highHalf(key[0]), lowHalf(key[0]), highHalf(key[1]), lowHalf(key[1]), block);
  return [0, 2, 4, 6].map((i) => joined(block[i], block[i + 1]));
}

// -- numbers: exp, log, Wright omega, the normal quantile -----------------------------------------------------------

const POWERS = new Float64Array(2046); // 2^m at m + 1022, by doubling and halving, which is exact
POWERS[1022] = 1;
for (let m = 1; m < 1024; m++) POWERS[1022 + m] = 2 * POWERS[1021 + m];
for (let m = 1; m <= 1022; m++) POWERS[1022 - m] = 0.5 * POWERS[1023 - m];

// 2^(j/64), correctly rounded
// prettier-ignore
const ROOTS = [
  1.0, 1.0108892860517005, 1.0218971486541166, 1.0330248790212284, 1.0442737824274138, 1.0556451783605572,
  1.0671404006768237, 1.0787607977571199, 1.0905077326652577, 1.102382583307841, 1.1143867425958924, 1.1265216186082418,
  1.1387886347566916, 1.1511892299529827, 1.1637248587775775, 1.1763969916502812, 1.189207115002721, 1.202156731452703,
  1.215247359980469, 1.22848053610687, 1.241857812073484, 1.255380757024691, 1.2690509571917332, 1.2828700160787783,
  1.2968395546510096, 1.3109612115247644, 1.3252366431597413, 1.339667524053303, 1.3542555469368927, 1.3690024229745905,
  1.383909881963832, 1.3989796725383112, 1.4142135623730951, 1.42961333839197, 1.4451808069770467, 1.460917794180647,
  1.4768261459394993, 1.4929077282912648, 1.5091644275934228, 1.5255981507445384, 1.5422108254079407, 1.559004400237837,
  1.5759808451078865, 1.593142151342267, 1.6104903319492543, 1.6280274218573478, 1.645755478153965, 1.6636765803267364,
  1.681792830507429, 1.7001063537185235, 1.718619298122478, 1.7373338352737062, 1.7562521603732995, 1.7753764925265212,
  1.7947090750031072, 1.8142521755003989, 1.8340080864093424, 1.8539791250833855, 1.8741676341103, 1.8945759815869656,
  1.9152065613971474, 1.9360617934922943, 1.9571441241754002, 1.978456026387951,
];
const LN2 = 0.6931471805599453;
const STEP = LN2 / 64;
const STEP_HIGH = Math.floor(STEP * 1099511627776) / 1099511627776; // 40 bits, so that k * STEP_HIGH is exact
const STEP_LOW = 2.5310172166650877e-13; // log(2)/64 - STEP_HIGH

/**
 * e^x = 2^m 2^(j/64) e^r with |r| <= log(2)/128, within two units in the last place for |x| <= 700; e^700 or e^-700
 * beyond (and e^-700 for NaN).
 */
export function exp(x) {
  x = x > -700 ? x : -700;
  x = x < 700 ? x : 700;
  const k = Math.floor(x * (1 / STEP) + 0.5);
  const r = x - k * STEP_HIGH - k * STEP_LOW;
  const scale = POWERS[(k >> 6) + 1022] * ROOTS[k & 63];
  return scale + scale * (r * (1 + r * (0.5 + r * (1 / 6 + r * (1 / 24 + r * (1 / 120))))));
}

const LN2_HIGH = 2977044471 / TWO32; // 32 bits, so that e * LN2_HIGH is exact
const LN2_LOW = 1.9082149292705877e-10; // log(2) - LN2_HIGH
const SQRT_HALF = 0.7071067811865476;
const BITS = new DataView(new ArrayBuffer(8));

/**
 * log x of a positive normal number: x = 2^e m with m in [sqrt(1/2), sqrt(2)), f = (m - 1) / (m + 1),
 * log m = 2 f (1 + f^2/3 + f^4/5 + ... + f^20/21).
 */
export function log(x) {
  BITS.setFloat64(0, x);
  const top = BITS.getUint32(0);
  let e = (top >>> 20) - 1022;
  BITS.setUint32(0, (top & 0xfffff) | 0x3fe00000);
  let m = BITS.getFloat64(0); // in [1/2, 1)
  if (m < SQRT_HALF) {
    m = m + m;
    e = e - 1;
  }
  const f = (m - 1) / (m + 1);
  const s = f * f;
  let series = 1 / 21;
  for (let k = 19; k > 0; k -= 2) series = series * s + 1 / k;
  return e * LN2_HIGH + (e * LN2_LOW + 2 * f * series);
}

const OMEGA_LOW = -8;
const OMEGA_HIGH = 24;
const OMEGA_CELLS = 2048; // of width 1/64
const OMEGA_TABLE = new Array(OMEGA_CELLS);

/** Taylor coefficients of Wright omega around the centre of a cell, worked out when first needed. */
export function omegaCell(i) {
  if (OMEGA_TABLE[i]) return OMEGA_TABLE[i];
  const x = OMEGA_LOW + (i + 0.5) / 64;
  let v = x < 3 ? x : 3; // Newton's method for v + e^v = x
  for (let step = 0; step < 9; step++) {
    const w = exp(v);
    v = v - (w + v - x) / (1 + w);
  }
  const w = exp(v);
  const q = 1 / (1 + w);
  const s = q * q;
  const first = w * q;
  const second = first * s;
  const third = second * s;
  const fourth = third * s;
  const fifth = fourth * s;
  OMEGA_TABLE[i] = [
    w,
    first,
    second / 2,
    (third * (1 - 2 * w)) / 6,
    (fourth * (1 + w * (-8 + 6 * w))) / 24,
    (fifth * (1 + w * (-22 + w * (58 - 24 * w)))) / 120,
  ];
  return OMEGA_TABLE[i];
}

function omegaNear(x) {
  const cell = (x - OMEGA_LOW) * 64;
  const i = Math.floor(cell < OMEGA_CELLS - 1 ? cell : OMEGA_CELLS - 1);
  const t = x - (OMEGA_LOW + (i + 0.5) / 64);
  const c = omegaCell(i);
  const high = c[3] + t * (c[4] + t * c[5]);
  return c[0] + t * (c[1] + t * (c[2] + t * high));
}

/** Outside the table: a series on the left, Fritsch-Shafer-Crowley steps on the right. */
function omegaFar(x) {
  if (x < OMEGA_LOW) {
    const e = exp(x);
    return e * (1 - e * (1 - e * (1.5 - e * (8 / 3 - e * (125 / 24)))));
  }
  if (!Number.isFinite(x)) return x;
  let w = x - log(x);
  for (let step = 0; step < 2; step++) {
    const r = x - w - log(w);
    const q = 1 + w;
    const s = q * (q + (2 * r) / 3);
    w = w * (1 + ((r / q) * (s - 0.5 * r)) / (s - r));
  }
  return w;
}

/** Wright omega: the w with w + log w = x. */
export function omega(x) {
  return OMEGA_LOW <= x && x <= OMEGA_HIGH ? omegaNear(x) : omegaFar(x);
}

// Wichura, "Algorithm AS 241: the percentage points of the normal distribution" (1988), PPND16: highest power first.
// The digits are those published, more than a double holds.
/* eslint-disable no-loss-of-precision */
// prettier-ignore
const CENTRE = [
  [2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
    1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0],
  [5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
    5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0],
];
// prettier-ignore
const MIDDLE = [
  [7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
    3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0],
  [1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
    6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0],
];
// prettier-ignore
const TAIL = [
  [2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
    2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0],
  [2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
    1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0],
];
/* eslint-enable no-loss-of-precision */

function polynomial(r, c) {
  return ((((((c[0] * r + c[1]) * r + c[2]) * r + c[3]) * r + c[4]) * r + c[5]) * r + c[6]) * r + c[7];
}

const rational = (r, of) => polynomial(r, of[0]) / polynomial(r, of[1]);

/** The normal quantile of 0 < u < 1. */
export function normalQuantile(u) {
  const q = u - 0.5;
  if (Math.abs(q) <= 0.425) return q * rational(0.180625 - q * q, CENTRE);
  const rest = 1 - u < u ? 1 - u : u;
  const r = Math.sqrt(-log(rest < 1e-300 ? 1e-300 : rest));
  const value = r <= 5 ? rational(r - 1.6, MIDDLE) : rational(r - 5, TAIL);
  return q < 0 ? -value : value;
}

// From the highest power down: the polynomial of normalTail.
// prettier-ignore
const NORMAL_TAIL = [
  -6.763267210562454e-10, -1.5456221598143852e-09, 5.474708632048689e-09, 1.7442583764419795e-08,
  -1.7932121916642413e-08, -1.1022354013739079e-07, -1.237153366992197e-09, 5.507747965364098e-07,
  4.0671730125154447e-07, -2.6118464340168558e-06, -3.433372216853275e-06, 1.3626315192600401e-05,
  2.1250446856208376e-05, -8.785300442645791e-05, -9.443033944152223e-05, 0.0006948970692570495,
  -0.00028562308680939413, -0.0050023785870514665, 0.01793609747886859, -0.03219783742831453,
  0.02860036405357749, 0.013999634724430469, -0.09670347732652607, 0.47205320650984467,
];
const DENSITY_AT_ZERO = 0.3989422804014327; // 1 / sqrt(2 pi)
const TAIL_RATIO_AT_ZERO = 1.2533141373155001; // sqrt(pi / 2)

/** Phi(-x) e^(x^2 / 2) for x >= 0: a polynomial in (x - 4) / (x + 4), divided by 1 + x. */
function normalTail(x) {
  x = x < 1e300 ? x : 1e300;
  const t = (x - 4) / (x + 4);
  let s = NORMAL_TAIL[0];
  for (let k = 1; k < 24; k++) s = s * t + NORMAL_TAIL[k];
  return s / (1 + x);
}

/** Phi(x), the normal distribution function. */
export function normalCdf(x) {
  const q = exp(-0.5 * x * x) * normalTail(Math.abs(x));
  return x > 0 ? 1 - q : q;
}

/** log Phi(x). */
export function logNormalCdf(x) {
  if (x > 0) return log(1 - exp(-0.5 * x * x) * normalTail(x));
  return log(normalTail(-x)) - 0.5 * x * x;
}

/** Phi(x) / phi(x). */
function mills(x) {
  if (!(x > 0)) return normalTail(-x) / DENSITY_AT_ZERO;
  const e = exp(-0.5 * x * x);
  return (1 - e * normalTail(x)) / (DENSITY_AT_ZERO * e);
}

/** The s that maximises s Phi(level - s): s = mills(x) at the root x of x + mills(x) = level, by Newton's method. */
export function bestNormalMargin(level) {
  level = level < 1e300 ? level : 1e300;
  level = level > -1e300 ? level : -1e300;
  let x = level < 0 ? level : 0;
  if (level > TAIL_RATIO_AT_ZERO) x = Math.sqrt(2 * log(level / TAIL_RATIO_AT_ZERO));
  for (let k = 0; k < 60; k++) {
    const r = mills(x);
    const step = (x + r - level) / (2 + x * r);
    x = x - step;
    if (!(Math.abs(step) > 1e-8 * (1 + Math.abs(x)))) break;
  }
  return x > 0 ? level - x : mills(x);
}

/**
 * A standard normal number from one word: the first bit its sign, the 52 after it the mass (k + 1/2) 2^-53 of its tail.
 */
function normalOf(high, low) {
  const k = (high & 0x7fffffff) * 2097152 + (low >>> 11);
  const value = normalQuantile((k + 0.5) * ULP);
  return high >>> 31 ? -value : value;
}

/** The same of a word as a BigInt. */
export function normal(word) {
  return normalOf(highHalf(word), lowHalf(word));
}

const BLOCK = new Uint32Array(8);

/**
 * Direction `number` of a seed, into v: the normals 4 j .. 4 j + 3 come from the counter (j, number, 0, 0) under the
 * key (seed, 0), and are divided by the root of the sum of their squares.
 */
export function directionInto(seedHigh, seedLow, number, v) {
  for (let j = 0; 4 * j < v.length; j++) {
    BLOCK.fill(0);
    BLOCK[1] = j;
    BLOCK[3] = number;
    philoxBlock(seedHigh, seedLow, 0, 0, BLOCK);
    for (let i = 0; i < 4 && 4 * j + i < v.length; i++) v[4 * j + i] = normalOf(BLOCK[2 * i], BLOCK[2 * i + 1]);
  }
  let total = 0;
  for (let i = 0; i < v.length; i++) total += v[i] * v[i];
  const length = Math.sqrt(total);
  for (let i = 0; i < v.length; i++) v[i] /= length;
}

/** Direction `number` of a seed in n dimensions. */
export function direction(seed, number, n) {
  const v = new Float64Array(n);
  directionInto(highHalf(seed), lowHalf(seed), number, v);
  return v;
}
