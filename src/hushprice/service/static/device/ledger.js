/** What one customer has spent over many reports, kept on the customer's own device; and where it is kept. */

import { BudgetSpent, InvalidInput, LedgerError, only } from "./errors.js";
import { lossDelta, lossEpsilon, lossOf } from "./guarantee.js";

// -- storage and locks -----------------------------------------------------------------------------------------------

/** Storage that lives as long as this object: what Node has, and what a browser without storage can be given. */
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

/** The browser's localStorage; memory where there is no browser. */
export function defaultStorage() {
  if (typeof globalThis.document === "undefined") return new MemoryStorage();
  try {
    if (globalThis.localStorage) return globalThis.localStorage;
  } catch {
    // browsers that block storage throw when it is only looked at
  }
  throw new LedgerError(
    "This browser gives the page no storage, so that a budget could not be kept. Pass storage: new MemoryStorage() " +
      "if one that ends with the page will do.",
  );
}

/**
 * A storage that may be used here. One that other tabs see too needs locks, without which two tabs could spend the same
 * budget and overwrite each other's reports; browsers give them to secure pages only. Memory and sessionStorage are one
 * tab's own (a tab that is duplicated starts with a copy of the latter); any other storage counts as shared.
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

const queues = new Map(); // the last one waiting for each name

async function queued(name, work) {
  const before = queues.get(name) ?? Promise.resolve();
  const turn = before.then(work, work);
  queues.set(name, turn);
  try {
    return await turn;
  } finally {
    if (queues.get(name) === turn) queues.delete(name);
  }
}

/** Run `work` alone among all tabs (navigator.locks), or among all of this process where there are no such locks. */
export function locked(name, work) {
  const locks = globalThis.navigator?.locks;
  return locks ? locks.request(`hushprice:${name}`, work) : queued(name, work);
}

// -- the ledger ------------------------------------------------------------------------------------------------------

const FORMAT = "hushprice-ledger-js";
const ROUNDING = 1 + 1e-12; // so that three reports of 0.1 fit under a cap of 0.3
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

function written(page) {
  const body = JSON.stringify(page);
  return JSON.stringify({ format: FORMAT, version: 1, page: body, checksum: checksum(body) });
}

const amount = (x) => typeof x === "number" && Number.isFinite(x) && x >= 0;

/** The page of a text, or a refusal of one that is damaged. */
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
 * A budget (epsilon, delta) for all the reports of one customer, which is never exceeded.
 *
 * Pure mechanisms add up, Gaussian ones by the exact curve of their sum. Each spending is in the storage before the
 * report is made, so that a crash can only make the customer safer. It is written twice, and whichever says more
 * counts; one that is damaged or has vanished stops reports and is never taken for a fresh one. (Whoever clears all of
 * the storage starts afresh: a ledger protects customers from mistakes, not from themselves.) The cap can be lowered,
 * not raised.
 */
export class Ledger {
  #storage;
  #keys;
  #cap;
  #known = null; // the last page this object has seen

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

  /** Charge one report of a mechanism, or refuse with BudgetSpent and charge nothing. */
  spend(mechanism) {
    return this.#alone(async (page) => {
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

  /** Whether one more report by this mechanism fits. */
  allows(mechanism) {
    return this.#alone((page) => fits(page, sum(page.spent, lossOf(mechanism))));
  }

  /** The cap, the reports so far, and the epsilon they spent together at the cap's delta. */
  state() {
    return this.#alone((page) => ({
      cap: { epsilon: page.epsilon, delta: page.delta },
      reports: page.reports,
      spent: lossEpsilon(page.spent, page.delta),
    }));
  }

  #alone(work) {
    return locked(this.#keys[0], async () => work(await this.#read()));
  }

  /** The ledger as it is now; a new one is written at once. */
  async #read() {
    const [text, copy] = [await this.#get(this.#keys[0]), await this.#get(this.#keys[1])];
    if (text === null && copy === null && this.#known === null) {
      const fresh = { ...this.#cap, spent: { epsilon: 0, square: 0, slack: 0 }, reports: 0 };
      await this.#write(fresh);
      return fresh;
    }
    const pages = [text, copy].filter((kept) => kept !== null).map(read);
    const unborn = text === null && pages.length === 1 && pages[0].reports === 0; // stopped while it was made
    if (pages.length < 2 && !unborn) throw new LedgerError(`The ledger has vanished in part or whole. ${HELP}`);
    return this.#latest(pages);
  }

  /** Whichever says more, under the lowest cap of all. */
  async #latest(pages) {
    const seen = this.#known === null ? pages : [...pages, this.#known];
    const most = seen.reduce((a, b) => (b.reports > a.reports ? b : a));
    const epsilon = Math.min(...pages.map((page) => page.epsilon));
    const delta = Math.min(...pages.map((page) => page.delta));
    if (this.#known === null && (this.#cap.epsilon > epsilon || this.#cap.delta > delta)) {
      throw new InvalidInput(
        `The ledger has a cap of epsilon = ${epsilon}, delta = ${delta}, which can be lowered but not raised.`,
      );
    }
    const cap = { epsilon: Math.min(epsilon, this.#cap.epsilon), delta: Math.min(delta, this.#cap.delta) };
    const page = { ...most, ...cap };
    if (cap.epsilon < epsilon || cap.delta < delta) await this.#write(page);
    this.#known = page;
    return page;
  }

  async #get(key) {
    try {
      return (await this.#storage.getItem(key)) ?? null;
    } catch (cause) {
      throw new LedgerError(`The ledger cannot be read. ${HELP}`, { cause });
    }
  }

  /** The copy first: wherever it stops, one of the two says as much as was spent. */
  async #write(page) {
    try {
      for (const key of [...this.#keys].reverse()) await this.#storage.setItem(key, written(page));
    } catch (cause) {
      throw new LedgerError("The ledger cannot be written. No report is made.", { cause });
    }
    this.#known = page;
  }
}

const sum = (a, b) => ({ epsilon: a.epsilon + b.epsilon, square: a.square + b.square, slack: a.slack + b.slack });
const fits = (page, spent) => lossDelta(spent, page.epsilon * ROUNDING) <= page.delta;
