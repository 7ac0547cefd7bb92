/**
 * hushprice-device: the customer's side of a private product of a hushprice service.
 *
 *     params from the server -> price on this device -> sale or no sale -> one randomised report
 *
 * The context never leaves the device. Prices and reports have the same bits as those of hushprice in Python, because
 * they are computed by IEEE operations (+ - * / and square root) in a fixed order and by 64-bit integers only. The
 * recipe is in docs/privacy.md of hushprice; the test vectors are protocol/vectors/privacy.json and
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

const TIMEOUT = 15; // seconds per request
const LONGEST_AGE = 3600; // seconds: the longest time for which a server may have its parameters cached
const LONGEST_STALE = 600; // seconds for which cached parameters are used while the service cannot be reached
const BUSY = [408, 425, 429]; // statuses, besides 500 and above, after which the same request may succeed
const WAITS = [0.2, 0.6]; // seconds before parameters are fetched again
const OPTIONS = "url key product promise ledger storage fetch words now onSend onRefused".split(" ");
const MAX_FETCHES = 3; // of parameters older than the cached ones: one worker of the service may lag behind another

const secrets = new WeakMap(); // the private part of an offer: its device, parameters and context

/** A price for a customer. It contains no data of the customer, not even when it is logged or converted to JSON. */
export class Offer {
  constructor(price, params) {
    this.price = price;
    this.version = params.version;
    this.experiment = params.phase === "explore";
    Object.freeze(this);
  }
}

/** Seconds for which an answer may be cached. */
function maxAge(headers) {
  const text = headers.get("cache-control") ?? "";
  const match = /(?:^|[\s,])max-age=(\d+)/i.exec(text);
  return match && !/no-store|no-cache/i.test(text) ? Math.min(Number(match[1]), LONGEST_AGE) : 0;
}

/** Why the service sends no parameters, by the status of its answer. */
function refusal(status) {
  const causes = {
    401: "the key is not known to it: check the key.",
    403: "the key may not do this: take one of the role device.",
    404: "there is no such product, or no service at this address.",
    409: "the product is not a private one.",
  };
  return `The service does not give this device any parameters (${status}): ${causes[status] ?? "it did not say why."}`;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/**
 * A device: it prices for its customer, and reports.
 *
 * url, key, product: the service, a key of role device, the product.
 * promise: the weakest guarantee that one report may have.
 * ledger: the budget of all reports together, or null to leave them uncounted.
 * storage: where reports wait to be sent. Default: localStorage in browsers, memory elsewhere. A storage that tabs share
 *     needs the browser's locks, which https pages have.
 * fetch: makes requests. Default: the browser's.
 * onSend(bytes, { method, url, headers }): called before every request, with the bytes of its body.
 * onRefused(item, status): called for every report that the service will never accept.
 *
 * Every sale is followed by a report, or by a null if no report is asked for or the budget is spent. The server can
 * distinguish the two cases: a null during experiments reveals that the budget of this device is spent, and thus that
 * the device has reported before. It reveals nothing about the sale.
 *
 * Requests name the version of the current parameters, in If-None-Match and in reports. A server that sends one device a
 * version of its own could recognise the device by it. Versions are public numbers: an app that needs to exclude this
 * compares (await device.params()).version with the version that other devices see.
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
  #cached = null; // { params, at, age }: the last parameters that were read
  #started = false;
  #fetching = null;

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
      onVersion: (version) => this.#expire(version),
      onRefused,
    });
  }

  /** The ledger that reports are charged to. */
  get ledger() {
    return this.#ledger;
  }

  /** Number of damaged reports in the storage since this object was made. They are set aside there, and not sent. */
  get damaged() {
    return this.#outbox.damaged;
  }

  /**
   * The current parameters: the cached ones while they are fresh, else the server's, checked against the promise.
   *
   * Parameters of an earlier version, or other parameters of the same version, are fetched again, because one worker of
   * the service may lag behind another. If the service repeats them, it was restarted, for example from a backup, and
   * they are accepted. This is safe: a server may publish any theta in its ball, and promise and ledger hold for all.
   */
  async params() {
    this.#start();
    const age = this.#age();
    if (age >= 0 && age < this.#cached?.age) return this.#cached.params;
    this.#fetching ??= this.#fetchParams().finally(() => {
      this.#fetching = null;
    });
    return this.#fetching;
  }

  /**
   * A price for a context, which is a list of numbers in the order of the features, or an object by their names.
   *
   * segment and cost are the customer's, if the product has them. price is the shop's own price, in mode shadow only: it
   * must lie in the range of prices for this customer. The server publishes that range, and an offer with a price
   * outside it is not reported: use a price that the server may know. Context, segment and cost never leave the device.
   */
  async offer(z, options = {}) {
    only(options, ["segment", "cost", "price"], "An offer");
    const { segment = null, cost = null, price = null } = options;
    const params = await this.params();
    const context = contextOf(params, z);
    const uniform = params.phase === "explore" ? uniformOf(this.#words.draw(1, "price")[0]) : 0;
    const offer = new Offer(quote(params, context, { segment, cost, price, uniform }), params);
    const id = this.#words.draw(2, "id").map(hex).join("");
    secrets.set(offer, { device: this, id, params, context, outcome: null, settled: null });
    return offer;
  }

  /**
   * Report the outcome of an offer: 1 or 0 (sold or not), or the amount sold.
   *
   * It charges the ledger, makes the report, stores it and sends it. A report that cannot be sent now is sent later with
   * the same id. Each offer is reported once: another call with the same outcome resolves to the same result, and one
   * with another outcome is refused. Resolves to { id, version, report, sent }. The report is null if none is asked for
   * or the budget is spent: a device always sends something, so that silence reveals nothing. A null during experiments
   * reveals that the budget is spent.
   */
  async sold(offer, y) {
    const secret = secrets.get(offer);
    if (secret?.device !== this) throw new InvalidInput("This is not an offer of this device.");
    const outcome = outcomeOf(secret.params, y);
    if (secret.settled && secret.outcome !== outcome) {
      throw new InvalidInput("This offer was reported with another outcome before; there is one report per offer.");
    }
    secret.outcome = outcome;
    secret.settled ??= this.#settle(secret, offer.price);
    return secret.settled;
  }

  /** Send the waiting reports now. Resolves to how many were sent and how many still wait. */
  flush() {
    return this.#outbox.flush();
  }

  /** Stop sending in the background. Waiting reports stay in the storage. */
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
      secret.settled = null; // nothing was sent: a retry charges the ledger again
      throw problem;
    }
    secret.context = null;
    await this.#outbox.flush().catch(() => {}); // it stays in the storage and goes out with the next one
    return Object.freeze({ ...item, sent: !(await this.#outbox.holds(id)) });
  }

  /** Charge one report to the ledger. Resolves to whether the budget allows it. */
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
    return this.#cached === null ? -1 : this.#now() - this.#cached.at;
  }

  /** Send the reports that an earlier page left, when the device is first used. */
  #start() {
    if (this.#started) return;
    this.#started = true;
    this.flush().catch(() => {});
  }

  async #fetchParams() {
    for (let attempt = 1; attempt < MAX_FETCHES; attempt++) {
      const params = await this.#fetchOnce(false);
      if (params !== null) return params;
      await this.#pause(0.2);
    }
    return this.#fetchOnce(true);
  }

  #pause(seconds) {
    return new Promise((done) => setTimeout(done, 1000 * seconds));
  }

  /**
   * The server's parameters, or the cached ones while it cannot be reached; null if they do not follow the cached ones
   * and `restarted` is false.
   */
  async #fetchOnce(restarted) {
    const headers = { Accept: "application/json" };
    // the version, not the server's ETag, by which a server could recognise the device
    if (this.#cached) headers["If-None-Match"] = `"${this.#cached.params.version}"`;
    for (const wait of [...WAITS, null]) {
      try {
        return this.#accept(await this.#request("GET", "params", headers), restarted);
      } catch (problem) {
        if (!(problem instanceof Unavailable)) throw problem;
        const age = this.#age();
        if (age >= 0 && age < LONGEST_STALE) return this.#cached.params;
        if (wait === null) throw problem;
        await this.#pause(wait);
      }
    }
  }

  #accept({ status, headers, text }, restarted) {
    if (status === 304 && this.#cached) return this.#cache(this.#cached.params, headers);
    if (status >= 500 || BUSY.includes(status)) throw new Unavailable(`The service is not available (${status}).`);
    if (status !== 200) throw new InvalidInput(refusal(status));
    const params = readParams(parsed(text), this.#promise);
    if (params.product !== this.#product) throw new BrokenPromise("The server sent another product's parameters.");
    if (this.#cached && !follows(params, this.#cached.params) && !restarted) return null;
    return this.#cache(params, headers);
  }

  #cache(params, headers) {
    this.#cached = { params, at: this.#now(), age: maxAge(headers) };
    return params;
  }

  /** Expire the cached parameters if the service has a later version. */
  #expire(version) {
    if (this.#cached && version > this.#cached.params.version) this.#cached = { ...this.#cached, age: 0 };
  }

  // -- requests -----------------------------------------------------------------------------------------------------

  /** One request that carries nothing but what is written here: no cookies, no referrer, no redirects. */
  async #request(method, path, headers, body = null) {
    const url = `${this.#address}/${path}`;
    this.#onSend?.(body ?? new Uint8Array(), { method, url, headers: { ...headers } });
    const stop = new AbortController();
    const timer = setTimeout(() => stop.abort(), 1000 * TIMEOUT);
    try {
      const answer = await this.#fetch(url, {
        method,
        headers: { ...headers, Authorization: `Bearer ${this.#key}` },
        body,
        cache: "no-store",
        credentials: "omit",
        redirect: "error",
        referrerPolicy: "no-referrer",
        keepalive: body !== null && body.length < 60000, // the request outlives a page that closes
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

/** The address of a product. */
function address(url, product) {
  let base;
  try {
    base = new URL(url, globalThis.location?.origin);
  } catch {
    throw new InvalidInput("url must be the address of a hushprice service, as in 'https://prices.example'.");
  }
  return `${base.origin}${base.pathname.replace(/\/+$/, "")}/v1/products/${product}`;
}
