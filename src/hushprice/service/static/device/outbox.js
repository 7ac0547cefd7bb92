/** Reports that wait to be sent. They are in the storage, so that a closed page loses none. */

import { LedgerError, Unavailable } from "./errors.js";
import { locked } from "./ledger.js";
import { SystemWords, uniformOf } from "./numbers.js";

const BATCH = 200; // reports per request; the service accepts up to 1000
const LONGEST_WAIT = 300; // seconds between two attempts
const PERMANENT = [400, 409, 413, 422]; // statuses of a refusal that no retry can change

const isWhole = (x) => Number.isSafeInteger(x);

/** A report with exactly the keys and kinds of numbers that the service expects; null if it is not one. */
function plainReport(x) {
  if (typeof x !== "object" || x === null) return null;
  if (typeof x.seed === "string" && /^[0-9a-f]{16}$/.test(x.seed) && isWhole(x.index) && x.index >= 0) {
    return { seed: x.seed, index: x.index };
  }
  return Array.isArray(x.grid) && x.grid.every(isWhole) ? { grid: [...x.grid] } : null;
}

/** An item of the storage as it may be sent; null for one that a device cannot have stored. */
function plainItem(x) {
  if (typeof x !== "object" || x === null || !/^[0-9a-f]{32}$/.test(x.id) || !isWhole(x.version)) return null;
  const plain = plainReport(x.report);
  return x.report === null || plain !== null ? { id: x.id, version: x.version, report: plain } : null;
}

/** The items in a text, and the damaged parts of it: the whole text if it is not a list. */
function parsedItems(text) {
  const damaged = [];
  const items = [];
  try {
    const list = JSON.parse(text ?? "[]");
    if (!Array.isArray(list)) throw new SyntaxError();
    for (const entry of list) {
      const item = plainItem(entry);
      if (item !== null) items.push(item);
      else damaged.push(JSON.stringify(entry));
    }
  } catch {
    damaged.push(text);
  }
  return { items, damaged };
}

/** The body of a request: a single report as it is, several as a list. */
function bodyOf(items) {
  return new TextEncoder().encode(JSON.stringify(items.length === 1 ? items[0] : { reports: items }));
}

/**
 * Waiting reports. They are sent in batches in the order in which they were made, until the service acknowledges them.
 *
 * Damaged reports cannot be sent. Before they would be overwritten, they are moved to another key (":damaged"), one line
 * of JSON per report, for later inspection; `damaged` counts them.
 */
export class Outbox {
  #name;
  #storage;
  #post;
  #onVersion;
  #onRefused;
  #timer = null;
  #failures = 0;
  #closed = false;

  damaged = 0; // since this object was made

  constructor({ name, storage, post, onVersion, onRefused }) {
    this.#name = `hushprice:outbox:${name}`;
    this.#storage = storage;
    this.#post = post;
    this.#onVersion = onVersion ?? (() => {});
    this.#onRefused = onRefused ?? (() => {});
  }

  /** Store a report. It resolves once the storage has it. */
  async add(item) {
    await this.#change((items) => [...items, item]);
  }

  async holds(id) {
    return (await this.#items()).some((item) => item.id === id);
  }

  /** Send all waiting reports now, one tab at a time. After a failure, another attempt is scheduled; it does not throw. */
  flush() {
    clearTimeout(this.#timer);
    return locked(`${this.#name}:send`, () => this.#sendAll());
  }

  close() {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  async #sendAll() {
    let sent = 0;
    try {
      for (let items = await this.#items(); items.length > 0; items = await this.#items()) {
        sent += await this.#send(items.slice(0, BATCH));
      }
      this.#failures = 0;
    } catch (problem) {
      if (!(problem instanceof Unavailable)) throw problem;
      this.#schedule(problem.wait);
    }
    return { sent, waiting: (await this.#items()).length };
  }

  /** Send reports and delete them once they are acknowledged. A list that is refused is sent one report at a time. */
  async #send(items) {
    const answer = await this.#post(bodyOf(items));
    if (refusedForGood(answer)) return this.#refused(items, answer.status);
    acknowledged(answer, items.length, this.#onVersion);
    await this.#delete(items);
    return items.length;
  }

  async #refused(items, status) {
    if (items.length === 1) {
      await this.#delete(items);
      this.#onRefused(items[0], status);
      return 0;
    }
    let sent = 0;
    for (const item of items) sent += await this.#send([item]);
    return sent;
  }

  /** Schedule the next attempt: after 1, 2, 4, ... seconds, times a random factor from 0.5 to 1 so that devices spread. */
  #schedule(wait) {
    if (this.#closed) return;
    const delay = Math.min(LONGEST_WAIT, POWERS_OF_TWO[Math.min(this.#failures++, 9)]);
    const jitter = 1 - 0.5 * uniformOf(new SystemWords().draw(1)[0]);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.flush().catch(() => {}), 1000 * Math.max(delay * jitter, wait ?? 0));
    this.#timer?.unref?.(); // it does not keep Node running
  }

  async #items() {
    return parsedItems(await this.#storage.getItem(this.#name)).items;
  }

  async #setAside(damaged) {
    const key = `${this.#name}:damaged`;
    const before = await this.#storage.getItem(key);
    const lines = before === null ? [] : before.split("\n");
    const more = damaged.map((text) => JSON.stringify(text)).filter((line) => !lines.includes(line));
    if (more.length > 0) await this.#storage.setItem(key, [...lines, ...more].join("\n"));
    this.damaged += more.length;
  }

  #delete(items) {
    const deleted = new Set(items.map((item) => item.id));
    return this.#change((stored) => stored.filter((item) => !deleted.has(item.id)));
  }

  #change(work) {
    return locked(this.#name, async () => {
      const { items: before, damaged } = parsedItems(await this.#storage.getItem(this.#name));
      const items = work(before);
      try {
        if (damaged.length > 0) await this.#setAside(damaged);
        if (items.length === 0) await this.#storage.removeItem(this.#name);
        else await this.#storage.setItem(this.#name, JSON.stringify(items));
      } catch (cause) {
        throw new LedgerError("The storage is full or cannot be written: the report was not kept and is not sent.", {
          cause,
        });
      }
    });
  }
}

const POWERS_OF_TWO = Array.from({ length: 10 }, (_, k) => 1 << k);

/** Whether the service itself refuses for good. (An error page of a network in between does not count.) */
function refusedForGood({ status, text }) {
  if (!PERMANENT.includes(status)) return false;
  try {
    const { code, message } = JSON.parse(text).error;
    return typeof code === "string" && typeof message === "string";
  } catch {
    return false;
  }
}

/** Throw unless an answer acknowledges all of the reports. (A login page has status 200 too.) */
function acknowledged({ status, headers, text }, count, onVersion) {
  let body = null;
  try {
    body = status >= 200 && status < 300 ? JSON.parse(text) : null;
  } catch {
    // not the service's answer
  }
  if (!body || !isWhole(body.accepted) || !isWhole(body.known) || body.accepted + body.known !== count) {
    const problem = new Unavailable(`The reports were not acknowledged (${status}).`);
    problem.wait = Math.min(Number(headers.get("retry-after")) || 0, LONGEST_WAIT);
    throw problem;
  }
  if (isWhole(body.version)) onVersion(body.version);
}
