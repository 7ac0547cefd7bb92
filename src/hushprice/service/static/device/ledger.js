/** The ledger: the privacy budget of one customer, stored on the customer's own device; and its storage. */

import { BudgetSpent, InvalidInput, LedgerError, only } from "./errors.js";
import { lossDelta, lossEpsilon, lossOf } from "./guarantee.js";

// -- storage and locks -----------------------------------------------------------------------------------------------

/** Storage for the lifetime of this object: the default in Node, and an option for browsers without storage. */
export class MemoryStorage {
  #items = new Map();

  getItem(key) {
    return this.#items.get(key) ?? null;
  }

  setItem(key, text) {
    this.#items.set(key, String(text));
  }

  removeItem(key) {
    this.#items.delete(key);
  }
}

/** The browser's localStorage; memory outside browsers. */
export function defaultStorage() {
  if (typeof globalThis.document === "undefined") return new MemoryStorage();
  try {
    if (globalThis.localStorage) return globalThis.localStorage;
  } catch {
    // browsers that block storage throw on access
  }
  throw new LedgerError(
    "This browser gives the page no storage, so that a budget could not be kept. Pass storage: new MemoryStorage() " +
      "if one that ends with the page will do.",
  );
}

/**
 * Check that a storage is safe to use on this page. A storage that tabs share needs locks, without which two tabs could
 * spend the same budget and overwrite each other's reports; browsers provide locks to secure pages only. Memory and
 * sessionStorage belong to one tab (a duplicated tab starts with a copy of the latter); any other counts as shared.
 */
export function checkShared(storage) {
  if (typeof globalThis.window === "undefined" || globalThis.navigator?.locks) return storage;
  if (storage instanceof MemoryStorage || storage === sessionStore()) return storage;
  throw new LedgerError(
    "This page has no locks (navigator.locks), so that several tabs would spend one budget twice and lose reports. " +
      "Serve it by https, or pass storage: new MemoryStorage() if a budget that ends with the page will do.",
  );
}

function sessionStore() {
  try {
    return globalThis.sessionStorage;
  } catch {
    return undefined; // blocked
  }
}

const queues = new Map(); // name -> the last task in its queue

async function queued(name, work) {
  const before = queues.get(name) ?? Promise.resolve();
  const task = before.then(work, work);
  queues.set(name, task);
  try {
    return await task;
  } finally {
    if (queues.get(name) === task) queues.delete(name);
  }
}

/** Run `work` under a lock: across all tabs (navigator.locks), or within this process where there are no such locks. */
export function locked(name, work) {
  const locks = globalThis.navigator?.locks;
  return locks ? locks.request(`hushprice:${name}`, work) : queued(name, work);
}

// -- the ledger ------------------------------------------------------------------------------------------------------

const FORMAT = "hushprice-ledger-js";
const CAP_TOLERANCE = 1 + 1e-12; // lets three reports of 0.1 fit under a cap of 0.3
const HELP = "No report is made. If it cannot be restored, the budget counts as spent.";

/** CRC-32 of a text. */
function checksum(text) {
  let crc = -1;
  for (const byte of new TextEncoder().encode(text)) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}

/** @typedef {{ epsilon: number, delta: number, spent: import("./guarantee.js").Loss, reports: number }} Page */

function textOf(page) {
  const body = JSON.stringify(page);
  return JSON.stringify({ format: FORMAT, version: 1, page: body, checksum: checksum(body) });
}

const amount = (x) => typeof x === "number" && Number.isFinite(x) && x >= 0;

/** The page in a text. It throws if the text is damaged. */
function read(text) {
  try {
    const outer = JSON.parse(text);
    const page = JSON.parse(outer.page);
    const { epsilon, delta, spent, reports } = page;
    const amounts = [epsilon, delta, spent.epsilon, spent.square, spent.slack];
    if (outer.format !== FORMAT || outer.version !== 1 || outer.checksum !== checksum(outer.page)) throw new Error();
    if (!amounts.every(amount) || !Number.isSafeInteger(reports) || reports < 0) throw new Error();
    return page;
  } catch {
    throw new LedgerError(`The ledger is damaged or not a ledger. ${HELP}`);
  }
}

/**
 * A privacy budget (epsilon, delta) for all reports of one customer, which is never exceeded.
 *
 * Losses of pure mechanisms add; those of Gaussian mechanisms combine exactly. Every charge is in the storage before the
 * report is made, so a crash can only make the customer safer. It is written twice, and the copy with more reports
 * counts. A damaged or missing copy stops reports; it never counts as a new ledger. (Clearing the whole storage starts
 * a new ledger: it protects customers from mistakes, not from themselves.) The cap can be lowered but not raised.
 */
export class Ledger {
  #storage;
  #keys;
  #cap;
  #last = null; // the last page that this object read or wrote

  constructor(options = {}) {
    only(options, ["epsilon", "delta", "storage", "name"], "A ledger");
    const { epsilon, delta = 0, storage = defaultStorage(), name = "customer" } = options;
    if (!amount(epsilon) || epsilon === 0 || epsilon > 1e6) {
      throw new InvalidInput("The epsilon of a ledger must be a number above 0 and at most 1e6.");
    }
    if (!amount(delta) || delta > 1) throw new InvalidInput("The delta of a ledger must be a number from 0 to 1.");
    this.#storage = checkShared(storage);
    this.#cap = { epsilon, delta };
    this.#keys = [`hushprice:ledger:${name}`, `hushprice:ledger:${name}:copy`];
  }

  /** Charge one report of a mechanism. It throws BudgetSpent and charges nothing if the report exceeds the budget. */
  spend(mechanism) {
    return this.#locked(async (page) => {
      const spent = sum(page.spent, lossOf(mechanism));
      if (!fits(page, spent)) {
        throw new BudgetSpent(
          `One more report by ${mechanism.name} would exceed this customer's budget of epsilon = ${page.epsilon}, ` +
            `delta = ${page.delta} after ${page.reports} reports. None is sent.`,
        );
      }
      await this.#write({ ...page, spent, reports: page.reports + 1 });
    });
  }

  /** Whether the budget allows one more report by this mechanism. */
  allows(mechanism) {
    return this.#locked((page) => fits(page, sum(page.spent, lossOf(mechanism))));
  }

  /** The cap, the number of reports so far, and the epsilon of all of them together at the cap's delta. */
  state() {
    return this.#locked((page) => ({
      cap: { epsilon: page.epsilon, delta: page.delta },
      reports: page.reports,
      spent: lossEpsilon(page.spent, page.delta),
    }));
  }

  #locked(work) {
    return locked(this.#keys[0], async () => work(await this.#read()));
  }

  /** The current page. A new ledger is written at once. */
  async #read() {
    const [text, copy] = [await this.#get(this.#keys[0]), await this.#get(this.#keys[1])];
    if (text === null && copy === null && this.#last === null) {
      const fresh = { ...this.#cap, spent: { epsilon: 0, square: 0, slack: 0 }, reports: 0 };
      await this.#write(fresh);
      return fresh;
    }
    const pages = [text, copy].filter((stored) => stored !== null).map(read);
    const incomplete = text === null && pages.length === 1 && pages[0].reports === 0; // creation was interrupted
    if (pages.length < 2 && !incomplete) throw new LedgerError(`The ledger has vanished in part or whole. ${HELP}`);
    return this.#latest(pages);
  }

  /** The page with most reports, under the lowest cap of all. */
  async #latest(pages) {
    const candidates = this.#last === null ? pages : [...pages, this.#last];
    const most = candidates.reduce((a, b) => (b.reports > a.reports ? b : a));
    const epsilon = Math.min(...pages.map((page) => page.epsilon));
    const delta = Math.min(...pages.map((page) => page.delta));
    if (this.#last === null && (this.#cap.epsilon > epsilon || this.#cap.delta > delta)) {
      throw new InvalidInput(
        `The ledger has a cap of epsilon = ${epsilon}, delta = ${delta}, which can be lowered but not raised.`,
      );
    }
    const cap = { epsilon: Math.min(epsilon, this.#cap.epsilon), delta: Math.min(delta, this.#cap.delta) };
    const page = { ...most, ...cap };
    if (cap.epsilon < epsilon || cap.delta < delta) await this.#write(page);
    this.#last = page;
    return page;
  }

  async #get(key) {
    try {
      return (await this.#storage.getItem(key)) ?? null;
    } catch (cause) {
      throw new LedgerError(`The ledger cannot be read. ${HELP}`, { cause });
    }
  }

  /** Write the copy first: wherever it is interrupted, one of the two includes every charge. */
  async #write(page) {
    try {
      for (const key of [...this.#keys].reverse()) await this.#storage.setItem(key, textOf(page));
    } catch (cause) {
      throw new LedgerError("The ledger cannot be written. No report is made.", { cause });
    }
    this.#last = page;
  }
}

const sum = (a, b) => ({ epsilon: a.epsilon + b.epsilon, square: a.square + b.square, slack: a.slack + b.slack });
const fits = (page, spent) => lossDelta(spent, page.epsilon * CAP_TOLERANCE) <= page.delta;
