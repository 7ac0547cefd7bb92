/**
 * hushprice-device: the customer's side of a private product of a hushprice service.
 *
 *     params from the server -> price on this device -> sale or none -> one randomised report
 *
 * The context never leaves. Prices and reports have the same bits as those of hushprice in Python, since every number
 * that decides one is made of IEEE operations (+ - * / and the square root) in a fixed order, and of whole numbers of
 * 64 bits. The recipe is docs/privacy.md of hushprice, the test vectors are protocol/vectors/privacy.json and
 * protocol/vectors/device.json.
 *
 *     import { Device, Ledger, PrivacyPromise } from "hushprice-device";
 *     const device = new Device({
 *       url: "https://prices.example", key: "hp_device_...", product: "coffee",
 *       promise: new PrivacyPromise({ epsilon: 2, clip: 4, prices: [1, 5] }), ledger: new Ledger({ epsilon: 40 }),
 *     });
 *     const offer = await device.offer({ loyalty: 0.4, hurry: 0.1 });      // offer.price
 *     await device.sold(offer, 1);                                         // or 0: not sold
 *
 * @module hushprice-device
 */

import { BrokenPromise, BudgetSpent, InvalidInput, Unavailable, only } from "./errors.js";
import { Ledger, checkShared, defaultStorage } from "./ledger.js";
import { SystemWords, UnsafeWords, hex, uniformOf } from "./numbers.js";
import { Outbox } from "./outbox.js";
import { contextOf, follows, outcomeOf, quote, readParams, report, wordsNeeded } from "./params.js";
import { PrivacyPromise } from "./promise.js";

export { BrokenPromise, BudgetSpent, HushpriceError, InvalidInput, LedgerError, Unavailable } from "./errors.js";
export { Ledger, MemoryStorage } from "./ledger.js";
export { SystemWords, UnsafeWords } from "./numbers.js";
export { PrivacyPromise } from "./promise.js";
export { Params, quote, readParams, report, wordsNeeded } from "./params.js";

export const VERSION = "0.1.0";

const PATIENCE = 15; // seconds that a request may take
const LONGEST_AGE = 3600; // seconds: a server may not ask for parameters to be kept longer
const LONGEST_STALE = 600; // seconds that they serve on while the service cannot be reached
const BUSY = [408, 425, 429]; // statuses, next to those from 500 on, after which the same request may succeed
const WAITS = [0.2, 0.6]; // seconds before parameters are asked for again
const OPTIONS = "url key product promise ledger storage fetch words now onSend onRefused".split(" ");
const LOOKS = 3; // at parameters that do not follow those kept: one worker of the service may lag behind another

const held = new WeakMap(); // what an offer must not show: its device, the parameters, the context

/** A price for a customer. Of the customer it shows nothing, not even when it is logged or turned into JSON. */
export class Offer {
  constructor(price, params) {
    this.price = price;
    this.version = params.version;
    this.experiment = params.phase === "explore";
    Object.freeze(this);
  }
}

/** Seconds for which an answer may be kept. */
function maxAge(headers) {
  const text = headers.get("cache-control") ?? "";
  const found = /(?:^|[\s,])max-age=(\d+)/i.exec(text);
  return found && !/no-store|no-cache/i.test(text) ? Math.min(Number(found[1]), LONGEST_AGE) : 0;
}

/** Why a service gives no parameters, by the status of its answer. */
function refusal(status) {
  const known = {
    401: "the key is not known to it: check the key.",
    403: "the key may not do this: take one of the role device.",
    404: "there is no such product, or no service at this address.",
    409: "the product is not a private one.",
  };
  return `The service does not give this device any parameters (${status}): ${known[status] ?? "it did not say why."}`;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/**
 * A device: prices for its customer, and reports.
 *
 * url, key, product: of the service, with a key of role device; promise: what one report may give away at most; ledger:
 * what all of them may, or null to leave that uncounted; storage: for reports not yet sent (localStorage in browsers,
 * memory elsewhere; one that tabs share needs the browser's locks, which https pages have); fetch: the browser's unless
 * given; onSend(bytes, { method, url, headers }) is told of every request before it is made, with the very bytes of its
 * body; onRefused(item, status) of reports that the service will never take.
 *
 * Every sale is followed by a report, or by a null where none is asked for or the budget is spent. Of these two the
 * server knows the first: a null while experiments are asked for tells it that the budget of this device is spent, and
 * so that it has reported before. It tells nothing of the sale it stands for.
 *
 * A request names the version of the parameters at hand, in If-None-Match and in a report. A server that gave a device
 * a version of its own could tell it from others by that. Versions are public numbers: an app that minds compares
 * (await device.params()).version with what others were given.
 */
export class Device {
  #address;
  #key;
  #product;
  #promise;
  #ledger;
  #outbox;
  #fetch;
  #words;
  #now;
  #onSend;
  #kept = null; // { params, at, age }: the last parameters that were read
  #awake = false;
  #asking = null;

  constructor(options = {}) {
    only(options, OPTIONS, "A device");
    const { url, key, product, promise, ledger, storage, fetch, words, now, onSend, onRefused } = options;
    if (typeof product !== "string" || !/^[a-z0-9][a-z0-9-]{0,39}$/.test(product)) {
      throw new InvalidInput("product must be the name of a product, as in 'coffee'.");
    }
    if (typeof key !== "string" || !/^[\x21-\x7e]+$/.test(key)) throw new InvalidInput("key must be an API key.");
    if (!(promise instanceof PrivacyPromise)) {
      throw new InvalidInput("promise must be a PrivacyPromise: what a report of this device may give away at most.");
    }
    if (ledger !== null && !(ledger instanceof Ledger)) {
      throw new InvalidInput("ledger must be a Ledger, or null to leave uncounted what many reports give away.");
    }
    if (words !== undefined && !(words instanceof SystemWords) && !(words instanceof UnsafeWords)) {
      throw new InvalidInput("Randomness is the operating system's (leave words out) or, in tests, UnsafeWords.");
    }
    this.#address = address(url, product);
    this.#key = key;
    this.#product = product;
    this.#promise = promise;
    this.#ledger = ledger;
    this.#fetch = fetch ?? globalThis.fetch.bind(globalThis);
    this.#words = words ?? new SystemWords();
    this.#now = now ?? (() => Date.now() / 1000);
    this.#onSend = onSend ?? null;
    this.#outbox = new Outbox({
      name: this.#address,
      storage: checkShared(storage ?? defaultStorage()),
      post: (body) => this.#request("POST", "reports", { "Content-Type": "application/json" }, body),
      onVersion: (version) => this.#hear(version),
      onRefused,
    });
  }

  /** The ledger that reports are charged to. */
  get ledger() {
    return this.#ledger;
  }

  /** Reports found damaged in the storage since this object was made. They are laid aside there, and not sent. */
  get damaged() {
    return this.#outbox.damaged;
  }

  /**
   * The parameters in force: those kept while they are fresh, else the server's, checked against the promise.
   *
   * Ones of an earlier version, or others of the same version, are looked at again: one worker of the service may lag
   * behind another. If they stay they are a new start, as of a service restored from a backup, and are taken. Nothing
   * is lost by that: a server may publish any theta of its ball, and promise and ledger hold for all.
   */
  async params() {
    this.#wake();
    const age = this.#age();
    if (age >= 0 && age < this.#kept?.age) return this.#kept.params;
    this.#asking ??= this.#ask().finally(() => {
      this.#asking = null;
    });
    return this.#asking;
  }

  /**
   * The price for a context: numbers in the order of the features, or by their names. It never leaves this device.
   * segment and cost, where the product has them, do not either; price is the shop's own one (mode shadow only, within
   * the range that a price for this customer could have; the server publishes that range, and one that is refused is not
   * reported: let it be a price that the server may know).
   */
  async offer(z, options = {}) {
    only(options, ["segment", "cost", "price"], "An offer");
    const { segment = null, cost = null, price = null } = options;
    const params = await this.params();
    const context = contextOf(params, z);
    const uniform = params.phase === "explore" ? uniformOf(this.#words.draw(1, "price")[0]) : 0;
    const offer = new Offer(quote(params, context, { segment, cost, price, uniform }), params);
    const id = this.#words.draw(2, "id").map(hex).join("");
    held.set(offer, { device: this, id, params, context, outcome: null, settled: null });
    return offer;
  }

  /**
   * What came of an offer: 1 or 0 (sold or not), or how much was. The same again makes no second report and resolves to
   * the same; something else is refused. Charges the ledger, makes the one report of this
   * offer, keeps it in the storage and sends it; what cannot be sent now is sent later, with the same id. Resolves to
   * what leaves and whether it has left: { id, version, report, sent }. The report is null where none is asked for or
   * the budget is spent: a device always sends something, so that silence says nothing. A null while experiments are
   * asked for says that the budget is spent.
   */
  async sold(offer, y) {
    const secret = held.get(offer);
    if (secret?.device !== this) throw new InvalidInput("This is not an offer of this device.");
    const outcome = outcomeOf(secret.params, y);
    if (secret.settled && secret.outcome !== outcome) {
      throw new InvalidInput("Something else was reported of this offer before, and only one report is made of it.");
    }
    secret.outcome = outcome;
    secret.settled ??= this.#settle(secret, offer.price);
    return secret.settled;
  }

  /** Send what waits, now. Resolves to how many reports were sent and how many still wait. */
  flush() {
    return this.#outbox.flush();
  }

  /** Stop trying in the background. Reports that wait stay in the storage. */
  close() {
    this.#outbox.close();
  }

  async #settle(secret, price) {
    const { id, params } = secret;
    const item = { id, version: params.version, report: null };
    try {
      if (params.learn && (await this.#charge(params.mechanism))) item.report = this.#report(secret, price);
      await this.#outbox.add(item);
    } catch (problem) {
      secret.settled = null; // nothing was sent: it can be tried again, and is charged again
      throw problem;
    }
    secret.context = null;
    await this.#outbox.flush().catch(() => {}); // it is kept, and goes out with the next one
    return Object.freeze({ ...item, sent: !(await this.#outbox.holds(id)) });
  }

  /** Whether one more report fits the budget, which then is spent. */
  async #charge(mechanism) {
    try {
      await this.#ledger?.spend(mechanism);
      return true;
    } catch (problem) {
      if (problem instanceof BudgetSpent) return false;
      throw problem;
    }
  }

  #report({ params, context, outcome }, price) {
    return report(params, context, price, outcome, this.#words.draw(wordsNeeded(params), "report"));
  }

  // -- parameters ---------------------------------------------------------------------------------------------------

  #age() {
    return this.#kept === null ? -1 : this.#now() - this.#kept.at;
  }

  /** Send what an earlier page left, when the device is first used. */
  #wake() {
    if (this.#awake) return;
    this.#awake = true;
    this.flush().catch(() => {});
  }

  async #ask() {
    for (let look = 1; look < LOOKS; look++) {
      const params = await this.#look(false);
      if (params !== null) return params;
      await this.#pause(0.2);
    }
    return this.#look(true);
  }

  #pause(seconds) {
    return new Promise((done) => setTimeout(done, 1000 * seconds));
  }

  /** The server's parameters, or the last ones while it cannot be reached; null if they are no sequel and must be. */
  async #look(afresh) {
    const headers = { Accept: "application/json" };
    // the version, not whatever the server sent as ETag: that could tell one device from all others
    if (this.#kept) headers["If-None-Match"] = `"${this.#kept.params.version}"`;
    for (const wait of [...WAITS, null]) {
      try {
        return this.#take(await this.#request("GET", "params", headers), afresh);
      } catch (problem) {
        if (!(problem instanceof Unavailable)) throw problem;
        const age = this.#age();
        if (age >= 0 && age < LONGEST_STALE) return this.#kept.params;
        if (wait === null) throw problem;
        await this.#pause(wait);
      }
    }
  }

  #take({ status, headers, text }, afresh) {
    if (status === 304 && this.#kept) return this.#keep(this.#kept.params, headers);
    if (status >= 500 || BUSY.includes(status)) throw new Unavailable(`The service is not available (${status}).`);
    if (status !== 200) throw new InvalidInput(refusal(status));
    const params = readParams(parsed(text), this.#promise);
    if (params.product !== this.#product) throw new BrokenPromise("The server sent another product's parameters.");
    if (this.#kept && !follows(params, this.#kept.params) && !afresh) return null;
    return this.#keep(params, headers);
  }

  #keep(params, headers) {
    this.#kept = { params, at: this.#now(), age: maxAge(headers) };
    return params;
  }

  /** The service told of a later version than the one kept. */
  #hear(version) {
    if (this.#kept && version > this.#kept.params.version) this.#kept = { ...this.#kept, age: 0 };
  }

  // -- requests -----------------------------------------------------------------------------------------------------

  /** One request, with nothing in it but what is written here: no cookies, no referrer, no way to be sent elsewhere. */
  async #request(method, path, headers, body = null) {
    const url = `${this.#address}/${path}`;
    this.#onSend?.(body ?? new Uint8Array(), { method, url, headers: { ...headers } });
    const stop = new AbortController();
    const timer = setTimeout(() => stop.abort(), 1000 * PATIENCE);
    try {
      const answer = await this.#fetch(url, {
        method,
        headers: { ...headers, Authorization: `Bearer ${this.#key}` },
        body,
        cache: "no-store",
        credentials: "omit",
        redirect: "error",
        referrerPolicy: "no-referrer",
        keepalive: body !== null && body.length < 60000, // a page that closes still sends it
        signal: stop.signal,
      });
      return { status: answer.status, headers: answer.headers, text: await answer.text() };
    } catch (cause) {
      throw new Unavailable("The service cannot be reached.", { cause });
    } finally {
      clearTimeout(timer);
    }
  }
}

/** Where a product is served. */
function address(url, product) {
  let base;
  try {
    base = new URL(url, globalThis.location?.origin);
  } catch {
    throw new InvalidInput("url must be the address of a hushprice service, as in 'https://prices.example'.");
  }
  return `${base.origin}${base.pathname.replace(/\/+$/, "")}/v1/products/${product}`;
}
