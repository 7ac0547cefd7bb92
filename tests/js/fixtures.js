/** Shared by the tests: a published document, a promise, and a service that runs in this process. */

import fs from "node:fs";

import { Device, Ledger, MemoryStorage, PrivacyPromise, UnsafeWords } from "#device/index.js";

const folder = new URL("../../protocol/vectors/", import.meta.url);

/** The test vectors of a file; integers of 64 bits are hexadecimal text there. */
export const vectors = (name) => JSON.parse(fs.readFileSync(new URL(name, folder), "utf8"));
export const word = (text) => BigInt(`0x${text}`);

export const promise = (more = {}) => new PrivacyPromise({ epsilon: 2, clip: 4, ...more });

/** A promise for customers of this document, with any report. */
export const generous = ({ family, segments }) =>
  new PrivacyPromise({ epsilon: 30, delta: 0.5, clip: 1e12, family, segments });

export const document = (more = {}) => ({
  format: "hushprice params",
  protocol: 1,
  product: "coffee",
  version: 12,
  mode: "live",
  family: "logistic",
  dim: 3,
  prices: [1, 5],
  experiments: [1, 5],
  cost: 0,
  ladder: [],
  ranges: {},
  segments: [],
  guardrails: { low: 1, high: 5 },
  phase: "exploit",
  level: 0,
  theta: [1, 0.5, 0.25, 0.5, 0.25, 0.125],
  learn: true,
  centre: [0, 0, 0, 0, 0, 0],
  radius: 4.9,
  score: { shift: 3, factor: 0.8660254037844386 },
  mechanism: { name: "l2-ball", epsilon: 2, delta: 0, clip: 4, dim: 6, pairs: 1, top: 1, sd: 0 },
  features: [
    { name: "constant", value: 1 },
    { name: "loyalty", low: 0, high: 1 },
    { name: "distance", low: -1, high: 1 },
  ],
  currency: "EUR",
  baseline: 3,
  ...more,
});

/** A service that answers as the real one does, records every request, and fails on demand. */
export class FakeService {
  constructor(published = document()) {
    this.published = published;
    this.headers = { "Cache-Control": "max-age=60" };
    this.forgetful = false; // sends the document even if the device has it
    this.requests = [];
    this.reports = new Map();
    this.trouble = []; // outcomes of the next requests: a status, an Error, or "lost" (accepted, but the answer is lost)
    this.fetch = (url, init) => this.#answer(url, init);
  }

  posts() {
    return this.requests.filter((request) => request.method === "POST");
  }

  async #answer(url, init) {
    const body = init.body === null ? "" : new TextDecoder().decode(init.body);
    this.requests.push({ url, method: init.method, headers: init.headers, body, init });
    const trouble = this.trouble.shift();
    if (trouble instanceof Error) throw trouble;
    if (typeof trouble === "number") return this.#reply(trouble, { error: { code: "no", message: "no" } });
    const answer = init.method === "GET" ? this.#params(init.headers) : this.#take(JSON.parse(body));
    if (trouble === "lost") throw new TypeError("the connection was lost");
    return answer;
  }

  #reply(status, plain, headers = {}) {
    return new Response(status === 304 ? null : JSON.stringify(plain), { status, headers });
  }

  #params(asked) {
    const etag = `"${this.published.version}"`;
    const headers = { ...this.headers, ETag: etag };
    if (asked["If-None-Match"] === etag && !this.forgetful) return this.#reply(304, null, headers);
    return this.#reply(200, this.published, headers);
  }

  #take(body) {
    const items = body.reports ?? [body];
    const known = items.filter((item) => this.reports.has(item.id)).length;
    for (const item of items) this.reports.set(item.id, item);
    return this.#reply(200, { accepted: items.length - known, known, version: this.published.version });
  }
}

/** A device of that service. */
export function deviceOf(service, more = {}) {
  const storage = more.storage ?? new MemoryStorage();
  return new Device({
    url: "https://prices.example/",
    key: "hp_device_secret",
    product: "coffee",
    promise: promise(),
    ledger: new Ledger({ epsilon: 1000, storage }),
    storage,
    fetch: service.fetch,
    words: new UnsafeWords(7n),
    ...more,
  });
}
