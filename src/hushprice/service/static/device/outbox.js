/** Reports that wait to be sent, kept in the storage so that a closed page loses none. */

import { LedgerError, Unavailable } from "./errors.js";
import { locked } from "./ledger.js";
import { SystemWords, uniformOf } from "./numbers.js";

const BATCH = 200; // reports in one request; the service takes up to 1000
const LONGEST_WAIT = 300; // seconds between two attempts
const NEVER = [400, 409, 413, 422]; // the service will not take it, however often it is sent

const isWhole = (x) => Number.isSafeInteger(x);

/** A report as it may leave, or null: exactly the keys and kinds of numbers that the service expects. */
function plainReport(x) {
  if (typeof x !== "object" || x === null) return null;
  if (typeof x.seed === "string" && /^[0-9a-f]{16}$/.test(x.seed) && isWhole(x.index) && x.index >= 0) {
    return { seed: x.seed, index: x.index };
  }
  return Array.isArray(x.grid) && x.grid.every(isWhole) ? { grid: [...x.grid] } : null;
}

/** An item of the storage as it may leave; null for what was never put there by a device. */
function plainItem(x) {
  if (typeof x !== "object" || x === null || !/^[0-9a-f]{32}$/.test(x.id) || !isWhole(x.version)) return null;
  const plain = plainReport(x.report);
  return x.report === null || plain !== null ? { id: x.id, version: x.version, report: plain } : null;
}

/** The items of a text, and what in it is none: of a text that is no list at all, the text. */
function parsedItems(text) {
  const damaged = [];
  const items = [];
  try {
    const found = JSON.parse(text ?? "[]");
    if (!Array.isArray(found)) throw new SyntaxError();
    for (const one of found) {
      const item = plainItem(one);
      if (item !== null) items.push(item);
      else damaged.push(JSON.stringify(one));
    }
  } catch {
    damaged.push(text);
  }
  return { items, damaged };
}

/** The bytes of a request: one report as it is, several as a list. */
function bodyOf(items) {
  return new TextEncoder().encode(JSON.stringify(items.length === 1 ? items[0] : { reports: items }));
}

/**
 * Reports that wait, sent in the order in which they were made, in batches, again and again until they are taken.
 *
 * What cannot be read cannot be sent. Before it would be overwritten it is laid aside under another key (":damaged"), a
 * line of JSON each, where whoever looks for lost reports finds it; `damaged` counts.
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

  damaged = 0; // found by this object

  constructor({ name, storage, post, onVersion, onRefused }) {
    this.#name = `hushprice:outbox:${name}`;
    this.#storage = storage;
    this.#post = post;
    this.#onVersion = onVersion ?? (() => {});
    this.#onRefused = onRefused ?? (() => {});
  }

  /** Keep one more; it counts as kept only when the storage has it. */
  async add(item) {
    await this.#change((items) => [...items, item]);
  }

  async holds(id) {
    return (await this.#items()).some((item) => item.id === id);
  }

  /** Send all that waits, now: one tab at a time. A failure is no error; a later attempt is planned. */
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
      this.#plan(problem.wait);
    }
    return { sent, waiting: (await this.#items()).length };
  }

  /** Send these and forget them once they are acknowledged. A list that is refused is sent one by one. */
  async #send(items) {
    const answer = await this.#post(bodyOf(items));
    if (refusedForGood(answer)) return this.#refused(items, answer.status);
    acknowledged(answer, items.length, this.#onVersion);
    await this.#forget(items);
    return items.length;
  }

  async #refused(items, status) {
    if (items.length === 1) {
      await this.#forget(items);
      this.#onRefused(items[0], status);
      return 0;
    }
    let sent = 0;
    for (const item of items) sent += await this.#send([item]);
    return sent;
  }

  /**
   * The next attempt: after 1, 2, 4, ... seconds, less up to half by chance so that devices do not come all at once.
   */
  #plan(wait) {
    if (this.#closed) return;
    const delay = Math.min(LONGEST_WAIT, POWERS_OF_TWO[Math.min(this.#failures++, 9)]);
    const chance = 1 - 0.5 * uniformOf(new SystemWords().draw(1)[0]);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.flush().catch(() => {}), 1000 * Math.max(delay * chance, wait ?? 0));
    this.#timer?.unref?.(); // Node need not stay up for it
  }

  async #items() {
    return parsedItems(await this.#storage.getItem(this.#name)).items;
  }

  async #layAside(damaged) {
    const key = `${this.#name}:damaged`;
    const before = await this.#storage.getItem(key);
    const lines = before === null ? [] : before.split("\n");
    const more = damaged.map((text) => JSON.stringify(text)).filter((line) => !lines.includes(line));
    if (more.length > 0) await this.#storage.setItem(key, [...lines, ...more].join("\n"));
    this.damaged += more.length;
  }

  #forget(items) {
    const gone = new Set(items.map((item) => item.id));
    return this.#change((kept) => kept.filter((item) => !gone.has(item.id)));
  }

  #change(work) {
    return locked(this.#name, async () => {
      const { items: before, damaged } = parsedItems(await this.#storage.getItem(this.#name));
      const items = work(before);
      try {
        if (damaged.length > 0) await this.#layAside(damaged);
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

/** Whether the service itself says that it will never take this: a page of somebody in between does not count. */
function refusedForGood({ status, text }) {
  if (!NEVER.includes(status)) return false;
  try {
    const { code, message } = JSON.parse(text).error;
    return typeof code === "string" && typeof message === "string";
  } catch {
    return false;
  }
}

/** Refuse any answer but one that counts all of the reports: a login page says 200 too. */
function acknowledged({ status, headers, text }, count, onVersion) {
  let told = null;
  try {
    told = status >= 200 && status < 300 ? JSON.parse(text) : null;
  } catch {
    // not the service's answer
  }
  if (!told || !isWhole(told.accepted) || !isWhole(told.known) || told.accepted + told.known !== count) {
    const problem = new Unavailable(`The reports were not acknowledged (${status}).`);
    problem.wait = Math.min(Number(headers.get("retry-after")) || 0, LONGEST_WAIT);
    throw problem;
  }
  if (isWhole(told.version)) onVersion(told.version);
}
