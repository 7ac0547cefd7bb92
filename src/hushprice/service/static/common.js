/** Functions that both pages share: they create elements, format numbers and call the service. */

/**
 * Create an element: el("p", { class: "note" }, "text", child, ...). Attributes that are null or false are omitted,
 * functions become listeners. Text never becomes markup.
 */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Replace all children of an element. */
export function fill(parent, ...children) {
  parent.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
}

/** Set a text only if it changes, so that screen readers do not repeat it. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** 12,345 */
export const whole = (n) => plain.format(n);

/** A number with about three significant digits. */
export function short(x) {
  if (x === 0) return "0";
  const size = Math.abs(x);
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 ? 2 : 3;
  return new Intl.NumberFormat("en", { maximumFractionDigits: digits }).format(x).replace("-", "\u2212");
}

/** 43% */
export const percent = (share) =>
  `${new Intl.NumberFormat("en", { maximumFractionDigits: share > 0 && share < 0.1 ? 1 : 0 }).format(100 * share)}%`;

/** An amount of money, or a plain number without a currency. */
export function money(x, currency, digits = 2) {
  const sign = x < 0 ? "\u2212" : "";
  if (/^[A-Z]{3}$/.test(currency)) {
    try {
      const style = { style: "currency", currency, currencyDisplay: "narrowSymbol" };
      const both = { ...style, minimumFractionDigits: digits, maximumFractionDigits: digits };
      return sign + new Intl.NumberFormat("en", both).format(Math.abs(x));
    } catch {
      // the browser does not know this currency
    }
  }
  return `${sign}${Math.abs(x).toFixed(digits)}${currency ? ` ${currency}` : ""}`;
}

/** A difference of two amounts, with its sign. */
export const difference = (x, currency, digits = 2) =>
  (x > 0 ? "+" : "") + money(x, currency, digits).replace(/^([-\u2212])/, "$1\u2060"); // no line break there

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

/** A number of seconds as text: 5 minutes, 3 hours. */
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

/** A refusal by the service, with its status and text. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Calls the service with a key. It polls with ETags. */
export class Api {
  #cache = new Map(); // path -> { etag, value }

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
    const value = await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Refused(answer.status, value.error?.message ?? `The service answered ${answer.status}.`);
    return { status: answer.status, value, etag: answer.headers.get("ETag") };
  }

  /** The answer, and whether it has changed since the last call. */
  async watch(path) {
    const before = this.#cache.get(path);
    const { status, value, etag } = await this.#call("GET", path, { etag: before?.etag });
    if (status === 304) return { value: before.value, fresh: false };
    if (etag) this.#cache.set(path, { etag, value });
    return { value, fresh: true };
  }

  async get(path) {
    return (await this.#call("GET", path)).value;
  }

  async post(path, body) {
    return (await this.#call("POST", path, { body })).value;
  }
}

/**
 * Run at most one call at a time (for sliders). If there are calls meanwhile, one more runs afterwards; all callers in
 * between wait for that one.
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
