/** What both pages share: making elements, writing numbers, calling the service. */

/**
 * An element: el("p", { class: "note" }, "text", child, ...). Attributes that are null or false are left out, functions
 * become listeners. Text never becomes markup.
 */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") made.addEventListener(name, value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Put children in the place of all that is there. */
export function fill(parent, ...children) {
  parent.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
}

/** Change a text only if it is another one, so that screen readers are not told the same again. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** 12,345 */
export const whole = (n) => plain.format(n);

/** A number with about three digits that matter. */
export function short(x) {
  if (x === 0) return "0";
  const size = Math.abs(x);
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 ? 2 : 3;
  return new Intl.NumberFormat("en", { maximumFractionDigits: digits }).format(x).replace("-", "\u2212");
}

/** 43% */
export const percent = (share) =>
  `${new Intl.NumberFormat("en", { maximumFractionDigits: share > 0 && share < 0.1 ? 1 : 0 }).format(100 * share)}%`;

/** An amount of money, or a bare number where no currency is stated. */
export function money(x, currency, digits = 2) {
  const sign = x < 0 ? "\u2212" : "";
  if (/^[A-Z]{3}$/.test(currency)) {
    try {
      const style = { style: "currency", currency, currencyDisplay: "narrowSymbol" };
      const both = { ...style, minimumFractionDigits: digits, maximumFractionDigits: digits };
      return sign + new Intl.NumberFormat("en", both).format(Math.abs(x));
    } catch {
      // not one that the browser knows
    }
  }
  return `${sign}${Math.abs(x).toFixed(digits)}${currency ? ` ${currency}` : ""}`;
}

/** The same with a sign in front: what one thing brings more than another. */
export const difference = (x, currency, digits = 2) =>
  (x > 0 ? "+" : "") + money(x, currency, digits).replace(/^([-\u2212])/, "$1\u2060"); // no line ends there

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const exactly = new Intl.DateTimeFormat("en-GB", {
  day: "numeric",
  month: "short",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
});

/** 14:05 */
export const time = (seconds) => clock.format(seconds * 1000);

/** 16 Nov, 14:05:09 */
export const moment = (seconds) => exactly.format(seconds * 1000);

/** 5 minutes, 3 hours: of a number of seconds. */
export function duration(seconds) {
  const units = [
    ["day", 86400],
    ["hour", 3600],
    ["minute", 60],
    ["second", 1],
  ];
  const [name, size] = units.find(([, length]) => seconds >= length) ?? units[3];
  const n = Math.round((10 * seconds) / size) / 10;
  return `${n} ${name}${n === 1 ? "" : "s"}`;
}

/** The service said no: its status and its words. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Calls of the service with a key. What is asked for again and again is asked for by its ETag. */
export class Api {
  #known = new Map();

  constructor(key) {
    this.key = key;
  }

  async #call(method, path, { body, etag } = {}) {
    const headers = { Authorization: `Bearer ${this.key}` };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    if (etag) headers["If-None-Match"] = etag;
    const answer = await fetch(path, {
      method,
      headers,
      cache: "no-store",
      credentials: "omit",
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.timeout(15_000),
    });
    if (answer.status === 304) return { status: 304 };
    const told = await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Refused(answer.status, told.error?.message ?? `The service answered ${answer.status}.`);
    return { status: answer.status, told, etag: answer.headers.get("ETag") };
  }

  /** The answer, and whether it is another than last time. */
  async watch(path) {
    const before = this.#known.get(path);
    const { status, told, etag } = await this.#call("GET", path, { etag: before?.etag });
    if (status === 304) return { value: before.value, fresh: false };
    if (etag) this.#known.set(path, { etag, value: told });
    return { value: told, fresh: true };
  }

  async get(path) {
    return (await this.#call("GET", path)).told;
  }

  async post(path, body) {
    return (await this.#call("POST", path, { body })).told;
  }
}

/**
 * At most one call at a time, and one more after it if there were calls meanwhile: for sliders. Whoever called meanwhile
 * waits for that one.
 */
export function latest(work) {
  let running = null;
  let next = null;
  return function run() {
    if (running === null) {
      running = work().finally(() => {
        running = null;
      });
      return running;
    }
    next ??= running
      .catch(() => {})
      .then(() => {
        next = null;
        return run();
      });
    return next;
  };
}
