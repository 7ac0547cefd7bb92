/** The budget is never exceeded, and never started afresh by accident. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { lossDelta, lossOf } from "#device/guarantee.js";
import { defaultStorage, locked } from "#device/ledger.js";
import {
  BudgetSpent,
  Device,
  InvalidInput,
  Ledger,
  LedgerError,
  MemoryStorage,
  PrivacyPromise,
} from "#device/index.js";

const pure = (epsilon) => ({ name: "l2-ball", epsilon });
const noise = { name: "gaussian", epsilon: 0.5, delta: 1e-3, clip: 2, sd: 18.55, dim: 6 };
const KEY = "hushprice:ledger:customer";

async function spendAll(ledger, mechanism) {
  for (let n = 0; ; n++) {
    if (!(await ledger.allows(mechanism))) {
      await assert.rejects(ledger.spend(mechanism), BudgetSpent);
      return n;
    }
    await ledger.spend(mechanism);
  }
}

test("pure epsilons add up to the cap and no further", async () => {
  assert.equal(await spendAll(new Ledger({ epsilon: 0.3 }), pure(0.1)), 3);
  assert.equal(await spendAll(new Ledger({ epsilon: 1 }), pure(0.4)), 2);
  const ledger = new Ledger({ epsilon: 1 });
  await ledger.spend(pure(0.4));
  assert.deepEqual(await ledger.state(), { cap: { epsilon: 1, delta: 0 }, reports: 1, spent: 0.4 });
});

test("Gaussian reports add up by the exact curve", async () => {
  const ledger = new Ledger({ epsilon: 2, delta: 1e-3 });
  const n = await spendAll(ledger, noise);
  const { square, slack } = lossOf(noise);
  const total = (k) => lossDelta({ epsilon: 0, square: k * square, slack: k * slack }, 2);
  assert.ok(total(n) <= 1e-3 && total(n + 1) > 1e-3);
  assert.ok(n > 4, "more than adding up the epsilons would allow");
  assert.equal(await new Ledger({ epsilon: 2 }).allows(noise), false, "none without a delta");
  const { spent } = await ledger.state();
  assert.ok(spent > 1.5 && spent <= 2);
});

test("both kinds together", async () => {
  const ledger = new Ledger({ epsilon: 2, delta: 1e-3 });
  await ledger.spend(pure(1.4));
  assert.ok(await ledger.allows(noise));
  await ledger.spend(noise);
  assert.equal(await ledger.allows(noise), false);
});

test("it outlives its object, and its cap can be lowered but not raised", async () => {
  const storage = new MemoryStorage();
  await new Ledger({ epsilon: 1, storage }).spend(pure(0.6));
  const again = new Ledger({ epsilon: 1, storage });
  await assert.rejects(again.spend(pure(0.6)), BudgetSpent);
  await assert.rejects(new Ledger({ epsilon: 2, storage }).spend(pure(0.6)), InvalidInput);
  await assert.rejects(new Ledger({ epsilon: 1, delta: 0.1, storage }).state(), InvalidInput);
  assert.equal((await new Ledger({ epsilon: 0.7, storage }).state()).cap.epsilon, 0.7);
  assert.equal((await again.state()).cap.epsilon, 0.7, "for others that hold it too");
  await assert.rejects(again.spend(pure(0.3)), BudgetSpent);
  assert.equal((await new Ledger({ epsilon: 1, storage, name: "other" }).state()).reports, 0);
});

test("damage stops reports", async () => {
  for (const key of [KEY, `${KEY}:copy`]) {
    for (const text of ["", "{}", "null", "[]", "half a led"]) {
      const storage = new MemoryStorage();
      await new Ledger({ epsilon: 1, storage }).spend(pure(0.1));
      storage.setItem(key, text);
      await assert.rejects(new Ledger({ epsilon: 1, storage }).spend(pure(0.1)), LedgerError);
    }
    const storage = new MemoryStorage();
    await new Ledger({ epsilon: 1, storage }).spend(pure(0.1));
    storage.setItem(key, storage.getItem(key).replace('\\"epsilon\\":0.1', '\\"epsilon\\":0.0'));
    await assert.rejects(new Ledger({ epsilon: 1, storage }).state(), LedgerError, "the checksum");
  }
});

test("one of two that vanishes, or both under a living ledger, stops reports", async () => {
  for (const gone of [[KEY], [`${KEY}:copy`]]) {
    const storage = new MemoryStorage();
    await new Ledger({ epsilon: 1, storage }).spend(pure(0.1));
    gone.forEach((key) => storage.removeItem(key));
    await assert.rejects(new Ledger({ epsilon: 1, storage }).spend(pure(0.1)), LedgerError);
  }
  const storage = new MemoryStorage();
  const ledger = new Ledger({ epsilon: 1, storage });
  await ledger.spend(pure(0.1));
  [KEY, `${KEY}:copy`].forEach((key) => storage.removeItem(key));
  await assert.rejects(ledger.spend(pure(0.1)), LedgerError);
});

test("restoring an old copy of one of the two gains nothing", async () => {
  for (const key of [KEY, `${KEY}:copy`]) {
    const storage = new MemoryStorage();
    const ledger = new Ledger({ epsilon: 1, storage });
    await ledger.spend(pure(0.4));
    const before = storage.getItem(key);
    await ledger.spend(pure(0.4));
    storage.setItem(key, before);
    assert.equal((await new Ledger({ epsilon: 1, storage }).state()).reports, 2);
  }
});

test("a crash between the two writes, at any moment, costs the customer nothing", async () => {
  for (let moment = 0; moment < 6; moment++) {
    const storage = new MemoryStorage();
    let writes = 0;
    const failing = {
      getItem: (key) => storage.getItem(key),
      setItem(key, text) {
        if (writes++ === moment) throw new Error("crash");
        storage.setItem(key, text);
      },
    };
    const ledger = new Ledger({ epsilon: 1, storage: failing });
    let made = 0;
    for (let i = 0; i < 2; i++) {
      try {
        await ledger.spend(pure(0.3));
        made++;
      } catch (problem) {
        assert.ok(problem instanceof LedgerError);
      }
    }
    const { reports } = await new Ledger({ epsilon: 1, storage }).state();
    assert.ok(reports >= made, `${reports} charged of ${made} made`);
  }
});

test("a storage that cannot be read or written stops reports", async () => {
  const fails = () => {
    throw new Error("no");
  };
  const storage = new MemoryStorage();
  const unread = { getItem: fails, setItem: (key, text) => storage.setItem(key, text) };
  const unwritten = { getItem: (key) => storage.getItem(key), setItem: fails };
  for (const bad of [unread, unwritten]) {
    await assert.rejects(new Ledger({ epsilon: 1, storage: bad }).spend(pure(0.1)), LedgerError);
  }
});

test("many at once, from several tabs, keep to the cap", async () => {
  const storage = new MemoryStorage();
  const slow = {
    getItem: async (key) => (await new Promise((done) => setTimeout(done, 1)), storage.getItem(key)),
    setItem: async (key, text) => (await new Promise((done) => setTimeout(done, 1)), storage.setItem(key, text)),
  };
  const tabs = Array.from({ length: 4 }, () => new Ledger({ epsilon: 1, storage: slow }));
  const all = await Promise.allSettled(tabs.flatMap((tab) => [tab.spend(pure(0.2)), tab.spend(pure(0.2))]));
  assert.equal(all.filter((one) => one.status === "fulfilled").length, 5);
  assert.equal((await tabs[0].state()).reports, 5);
});

test("the browser's locks are used where there are some", async () => {
  const before = Object.getOwnPropertyDescriptor(globalThis, "navigator");
  const asked = [];
  const locks = { request: (name, work) => (asked.push(name), work()) };
  Object.defineProperty(globalThis, "navigator", { value: { locks }, configurable: true });
  try {
    assert.equal(await locked("x", async () => 3), 3);
    await new Ledger({ epsilon: 1 }).spend(pure(0.2));
  } finally {
    if (before) Object.defineProperty(globalThis, "navigator", before);
    else delete globalThis.navigator;
  }
  assert.deepEqual(asked, ["hushprice:x", `hushprice:${KEY}`]);
});

test("tabs without locks may not use a shared storage", async () => {
  const originals = ["window", "navigator", "localStorage", "sessionStorage"].map((name) => {
    return [name, Object.getOwnPropertyDescriptor(globalThis, name)];
  });
  const put = (name, value) => Object.defineProperty(globalThis, name, { value, configurable: true });
  const like = () => ({ getItem: () => null, setItem() {}, removeItem() {} });
  const device = (storage) => {
    const ledger = new Ledger({ epsilon: 1, storage: new MemoryStorage() });
    const own = new PrivacyPromise({ epsilon: 1, clip: 1 });
    return new Device({ url: "http://shop", key: "key", product: "tea", promise: own, ledger, storage });
  };
  put("window", globalThis);
  put("navigator", {});
  put("localStorage", like());
  put("sessionStorage", like());
  try {
    for (const shared of [localStorage, like()]) {
      assert.throws(() => new Ledger({ epsilon: 1, storage: shared }), /https.*MemoryStorage/);
      assert.throws(() => device(shared), LedgerError);
    }
    for (const own of [new MemoryStorage(), sessionStorage]) {
      assert.ok(new Ledger({ epsilon: 1, storage: own }));
      assert.ok(device(own));
    }
    put("navigator", { locks: { request: (_, work) => work() } });
    assert.ok(new Ledger({ epsilon: 1, storage: localStorage }), "a secure page has locks");
    assert.ok(device(localStorage));
  } finally {
    for (const [name, before] of originals) {
      delete globalThis[name];
      if (before) Object.defineProperty(globalThis, name, before);
    }
  }
});

test("a browser without storage gets no ledger by default", () => {
  const page = { document: {}, localStorage: new MemoryStorage() };
  const before = Object.getOwnPropertyDescriptor(globalThis, "localStorage");
  globalThis.document = page.document;
  try {
    Object.defineProperty(globalThis, "localStorage", { value: page.localStorage, configurable: true });
    assert.equal(defaultStorage(), page.localStorage);
    const blocked = () => {
      throw new Error("blocked");
    };
    Object.defineProperty(globalThis, "localStorage", { get: blocked, configurable: true });
    assert.throws(defaultStorage, LedgerError);
  } finally {
    delete globalThis.document;
    delete globalThis.localStorage;
    if (before) Object.defineProperty(globalThis, "localStorage", before);
  }
});

test("an invalid cap is refused", () => {
  for (const cap of [{}, { epsilon: 0 }, { epsilon: NaN }, { epsilon: 1, delta: -1 }, { epsilon: "1" }]) {
    assert.throws(() => new Ledger(cap), InvalidInput);
  }
});
