/** The client: caching, one report an offer, nothing lost, and nothing leaving but what may. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";

import {
  BrokenPromise,
  Device,
  InvalidInput,
  Ledger,
  LedgerError,
  MemoryStorage,
  Unavailable,
  UnsafeWords,
  VERSION,
  readParams,
  report,
} from "#device/index.js";
import { FakeService, deviceOf, document, promise } from "./fixtures.js";

const Z = { loyalty: 0.734251, distance: -0.281937 };
const SECRETS = ["734251", "281937", "loyalty", "distance"];

test("a price, a sale, a report", async () => {
  const service = new FakeService();
  const device = deviceOf(service);
  const offer = await device.offer(Z);
  assert.ok(offer.price > 1 && offer.price < 5);
  assert.deepEqual({ ...offer }, { price: offer.price, version: 12, experiment: false });
  const receipt = await device.sold(offer, 1);
  assert.equal(receipt.sent, true);
  const words = new UnsafeWords(7n);
  const wanted = report(readParams(document(), promise()), Z, offer.price, 1, words.draw(3, "report"));
  assert.deepEqual(receipt.report, wanted);
  assert.deepEqual([...service.reports.values()], [{ id: receipt.id, version: 12, report: wanted }]);
  assert.match(receipt.id, /^[0-9a-f]{32}$/);
});

test("what leaves is exactly this, to the byte", async () => {
  const service = new FakeService();
  const calls = [];
  const device = deviceOf(service, { onSend: (bytes, about) => calls.push([bytes, about]) });
  const receipt = await device.sold(await device.offer(Z), 0);
  const { sent, ...item } = receipt;
  assert.ok(sent);
  const base = "https://prices.example/v1/products/coffee";
  const key = { Authorization: "Bearer hp_device_secret" };
  assert.deepEqual(
    service.requests.map(({ url, method, headers, body }) => ({ url, method, headers, body })),
    [
      { url: `${base}/params`, method: "GET", headers: { Accept: "application/json", ...key }, body: "" },
      {
        url: `${base}/reports`,
        method: "POST",
        headers: { "Content-Type": "application/json", ...key },
        body: JSON.stringify(item),
      },
    ],
  );
  for (const { init } of service.requests) {
    const { credentials, referrerPolicy, redirect, cache } = init;
    assert.deepEqual([credentials, referrerPolicy, redirect, cache], ["omit", "no-referrer", "error", "no-store"]);
  }
  assert.deepEqual(
    calls.map(([bytes, { method, url }]) => [new TextDecoder().decode(bytes), method, url]),
    service.requests.map(({ body, method, url }) => [body, method, url]),
  );
  assert.ok(calls.every(([, about]) => !JSON.stringify(about).includes("hp_device_secret")));
});

test("no number of the customer is in any request, storage, offer or error", async () => {
  const service = new FakeService(document({ segments: ["adult", "student"], ranges: { student: [1, 2] } }));
  const stored = [];
  const memory = new MemoryStorage();
  const storage = {
    getItem: (key) => memory.getItem(key),
    removeItem: (key) => memory.removeItem(key),
    setItem: (key, text) => (stored.push(key, text), memory.setItem(key, text)),
  };
  const own = promise({ segments: ["adult", "student"] });
  const device = deviceOf(service, { storage, words: undefined, promise: own });
  const texts = [];
  for (let i = 0; i < 40; i++) {
    const offer = await device.offer(Z, { segment: "student", cost: 0.619283 });
    texts.push(JSON.stringify(offer), inspect(offer, { showHidden: true, depth: 9 }));
    if (i % 4 === 0) service.trouble.push(503, new TypeError("offline"));
    texts.push(JSON.stringify(await device.sold(offer, i % 2)));
  }
  const note = (problem) => texts.push(inspect(problem));
  await device.sold(await device.offer(Z, { segment: "student" }), 0.619283).catch(note);
  await device.offer({ ...Z, loyalty: "734251" }, { segment: "student" }).catch(note);
  device.close();
  const sent = service.requests.map(({ url, headers, body }) => `${url} ${JSON.stringify(headers)} ${body}`);
  assert.ok(sent.length > 40 && stored.length > 40);
  for (const text of [...sent, ...stored]) {
    for (const secret of [...SECRETS, "student", "619283"]) assert.ok(!text.includes(secret), text);
  }
  for (const text of texts) {
    for (const secret of ["734251", "281937", "619283"]) assert.ok(!text.includes(secret), text);
  }
  for (const { body } of service.posts()) {
    for (const item of JSON.parse(body).reports ?? [JSON.parse(body)]) {
      assert.deepEqual(Object.keys(item), ["id", "version", "report"]);
      assert.deepEqual(Object.keys(item.report), ["seed", "index"]);
    }
  }
});

test("parameters are cached while they are fresh, then asked for again by their ETag", async () => {
  const service = new FakeService();
  let now = 1000;
  const device = deviceOf(service, { now: () => now });
  await Promise.all([device.offer(Z), device.offer(Z), device.params()]);
  assert.equal(service.requests.length, 1, "one request for all who wait");
  now += 59;
  await device.offer(Z);
  assert.equal(service.requests.length, 1);
  now += 1;
  const params = await device.params();
  assert.equal(service.requests.at(-1).headers["If-None-Match"], '"12"');
  now += 30;
  assert.equal(await device.params(), params, "304 makes them fresh again");
  assert.equal(service.requests.length, 2);
  now += 60;
  service.published = document({ version: 13 });
  assert.equal((await device.params()).version, 13);
  now -= 500;
  await device.params();
  assert.equal(service.requests.length, 4, "a clock set back does not make them last");
});

test("no max-age means asking every time, and the service's word of a later version too", async () => {
  for (const header of ["no-store", "max-age=0", "private, no-cache, max-age=60", ""]) {
    const service = new FakeService();
    service.headers = header ? { "Cache-Control": header } : {};
    const device = deviceOf(service);
    await device.params();
    await device.params();
    assert.equal(service.requests.length, 2);
  }
  const service = new FakeService();
  const device = deviceOf(service);
  const offer = await device.offer(Z);
  service.published = document({ version: 20 });
  await device.sold(offer, 1);
  assert.equal((await device.offer(Z)).version, 20);
});

test("while the service cannot be reached, the last parameters are used for ten minutes", async () => {
  const service = new FakeService();
  let now = 0;
  const device = deviceOf(service, { now: () => now });
  service.trouble.push(new TypeError("offline"), 503, new TypeError("offline"));
  await assert.rejects(device.offer(Z), Unavailable);
  service.trouble.push(new TypeError("offline"), 408);
  await device.offer(Z); // asked for again, and again
  for (const trouble of [new TypeError("offline"), 503, 429, 408, 425, 501, 520]) {
    now += 80;
    service.trouble.push(trouble);
    assert.equal((await device.offer(Z)).version, 12);
  }
  now += 600;
  service.trouble.push(503, 503, 503);
  await assert.rejects(device.offer(Z), Unavailable);
  service.trouble.push(401);
  await assert.rejects(device.offer(Z), { name: "InvalidInput", message: /check the key/ });
  service.trouble.push(403);
  await assert.rejects(device.offer(Z), { name: "InvalidInput", message: /the role device/ });
});

test("a server that asks for more or changes the product gets no price out of the device", async () => {
  const service = new FakeService();
  service.headers = {};
  service.forgetful = true;
  const device = deviceOf(service);
  await device.offer(Z);
  const more = { ...document().mechanism, epsilon: 3 };
  const bad = [
    { version: 11, mechanism: more }, // not after a restored backup either
    { version: 11, features: [] },
    { cost: 1 },
    { version: 14, mechanism: more },
    { version: 14, product: "tea" },
    { version: 14, theta: [9, 0, 0, 0, 0, 0] },
    { version: 14, mechanism: { ...more, epsilon: 1 } },
    { version: 14, prices: [1, 6], guardrails: { low: 1, high: 6 } },
  ];
  for (const change of bad) {
    service.published = document(change);
    await assert.rejects(device.offer(Z), BrokenPromise);
  }
  service.published = document({ version: 14, phase: "explore" });
  assert.equal((await device.offer(Z)).experiment, true);
});

test("whom a device refuses reveals nothing about the customer", async () => {
  const { features } = document();
  const asked = [
    [{ features: [features[0], { name: "loyalty", value: 0.4 }, features[2]] }, [0.4, 0.7], InvalidInput],
    [{ segments: ["gold"] }, ["gold", "silver"], BrokenPromise],
    [{ family: "poisson" }, [1, 3], BrokenPromise],
  ];
  for (const [change, customers, refusal] of asked) {
    const traces = [];
    for (const one of customers) {
      const service = new FakeService(document(change));
      const device = deviceOf(service);
      const terms = typeof one === "string" ? { segment: one } : {};
      const sale = device.offer({ ...Z, loyalty: one < 1 ? one : 0.5 }, terms).then((offer) => device.sold(offer, one));
      await assert.rejects(sale, refusal);
      traces.push(service.requests.map(({ method, url, body }) => `${method} ${url} ${body}`));
    }
    assert.deepEqual(traces[0], traces[1]);
  }
});

test("a list is taken as it is, whatever the server calls a constant", async () => {
  const { features } = document();
  const service = new FakeService(document({ features: [{ name: "constant", value: 5 }, features[1], features[2]] }));
  const device = deviceOf(service);
  for (const first of [1, 5]) assert.ok((await device.sold(await device.offer([first, 0.5, 0.25]), 1)).sent);
});

test("the ranges of features may change", async () => {
  const service = new FakeService();
  service.headers = {};
  const device = deviceOf(service);
  await device.offer(Z);
  const [constant, loyalty, distance] = document().features;
  service.published = document({ version: 13, features: [constant, { ...loyalty, high: 2 }, distance] });
  assert.equal((await device.offer(Z)).version, 13);
  service.published = document({ version: 14, features: [constant, { name: "loyalty", value: 0.5 }, distance] });
  await assert.rejects(device.offer(Z), BrokenPromise);
});

test("workers that lag behind one another do not break the promise", async () => {
  const service = new FakeService(document({ version: 13 }));
  service.headers = {};
  const late = new FakeService();
  let looks = 0;
  const fetch = (url, init) => (looks++ === 1 ? late : service).fetch(url, init);
  const device = deviceOf(service, { fetch });
  assert.equal((await device.offer(Z)).version, 13);
  assert.equal((await device.offer(Z)).version, 13);
  assert.equal(looks, 3);
});

test("a service restored from a backup is served on, after some looks", async () => {
  const service = new FakeService();
  service.headers = {};
  service.forgetful = true;
  const device = deviceOf(service);
  await device.offer(Z);
  const restored = [{ version: 3 }, { version: 3, phase: "explore" }]; // earlier, then another of the same version
  for (const change of restored) {
    service.published = document(change);
    const before = service.requests.length;
    const offer = await device.offer(Z);
    assert.deepEqual([offer.version, offer.experiment], [3, change.phase === "explore"]);
    assert.equal(service.requests.length - before, 3);
    assert.equal((await device.sold(offer, 1)).sent, true);
    assert.equal((await device.offer(Z)).version, 3);
    assert.equal(service.requests.length - before, 5, "it is the one to follow from now on");
  }
  assert.deepEqual(
    [...service.reports.values()].map(({ version }) => version),
    [3, 3],
  );
});

test("no ETag of the server is sent back", async () => {
  const service = new FakeService();
  service.headers = { ETag: '"visitor-4711"' };
  const fetch = async (url, init) => {
    const answer = await service.fetch(url, init);
    answer.headers.set("ETag", '"visitor-4711"');
    return answer;
  };
  const device = deviceOf(service, { fetch });
  await device.offer(Z);
  await device.offer(Z);
  assert.equal(service.requests[1].headers["If-None-Match"], '"12"');
  assert.ok(!JSON.stringify(service.requests).includes("4711"));
});

test("an offer is reported once", async () => {
  const service = new FakeService();
  const device = deviceOf(service);
  const offer = await device.offer(Z);
  const [first, second] = await Promise.all([device.sold(offer, 1), device.sold(offer, true)]);
  assert.deepEqual(first, second);
  assert.deepEqual(await device.sold(offer, 1), first);
  await assert.rejects(device.sold(offer, 0), InvalidInput);
  assert.equal(service.reports.size, 1);
  assert.equal((await device.ledger.state()).reports, 1);
  await assert.rejects(deviceOf(service).sold(offer, 1), InvalidInput);
  await assert.rejects(device.sold({ ...offer }, 1), InvalidInput);
  await assert.rejects(device.sold(await device.offer(Z), 0.5), InvalidInput);
});

test("nothing is said when nothing is asked or the budget is spent, but something is sent", async () => {
  const quiet = new FakeService(document({ learn: false }));
  const first = deviceOf(quiet);
  assert.equal((await first.sold(await first.offer(Z), 1)).report, null);
  assert.equal((await first.ledger.state()).reports, 0);
  const service = new FakeService();
  const device = deviceOf(service, { ledger: new Ledger({ epsilon: 5 }) });
  const reports = [];
  for (let i = 0; i < 4; i++) reports.push((await device.sold(await device.offer(Z), 1)).report);
  assert.deepEqual(
    reports.map((one) => one === null),
    [false, false, true, true],
  );
  assert.equal(service.reports.size, 4);
  const uncounted = deviceOf(service, { ledger: null });
  assert.ok((await uncounted.sold(await uncounted.offer(Z), 1)).report);
});

test("the ledger is charged before the report is made, and a damaged one stops it", async () => {
  const service = new FakeService();
  const storage = new MemoryStorage();
  const device = deviceOf(service, { storage, ledger: new Ledger({ epsilon: 100, storage }) });
  const offer = await device.offer(Z);
  await device.ledger.state();
  const good = storage.getItem("hushprice:ledger:customer");
  storage.setItem("hushprice:ledger:customer", "x");
  await assert.rejects(device.sold(offer, 1), LedgerError);
  assert.equal(service.posts().length, 0);
  storage.setItem("hushprice:ledger:customer", good);
  assert.ok((await device.sold(offer, 1)).sent, "nothing was made, so it may be tried again");
});

test("a report that cannot be stored is not sent, and is made again later", async () => {
  const service = new FakeService();
  const memory = new MemoryStorage();
  let full = true;
  const storage = {
    getItem: (key) => memory.getItem(key),
    removeItem: (key) => memory.removeItem(key),
    setItem(key, text) {
      if (full) throw new Error("full");
      memory.setItem(key, text);
    },
  };
  const device = deviceOf(service, { storage, ledger: new Ledger({ epsilon: 100 }) });
  const offer = await device.offer(Z);
  await assert.rejects(device.sold(offer, 1), LedgerError);
  assert.equal(service.posts().length, 0);
  full = false;
  assert.ok((await device.sold(offer, 1)).sent);
  assert.equal((await device.ledger.state()).reports, 2, "charged each time, to be safe");
});

test("a lost report is sent again with the same id and content", async () => {
  const service = new FakeService();
  const device = deviceOf(service);
  const offer = await device.offer(Z);
  service.trouble.push("lost");
  const receipt = await device.sold(offer, 1);
  assert.equal(receipt.sent, false);
  assert.deepEqual(await device.flush(), { sent: 1, waiting: 0 });
  const [first, second] = service.posts();
  assert.equal(first.body, second.body);
  assert.equal(service.reports.size, 1);
  assert.deepEqual(await device.flush(), { sent: 0, waiting: 0 });
  assert.equal(service.posts().length, 2);
});

test("what waits outlives the page, and is sent as one list", async () => {
  const service = new FakeService();
  const storage = new MemoryStorage();
  const device = deviceOf(service, { storage });
  const receipts = [];
  for (let i = 0; i < 3; i++) {
    const offer = await device.offer(Z);
    service.trouble.push(503);
    receipts.push(await device.sold(offer, 1));
  }
  assert.deepEqual(
    receipts.map(({ sent }) => sent),
    [false, false, false],
  );
  device.close();
  const next = deviceOf(service, { storage });
  await next.params();
  assert.deepEqual(await next.flush(), { sent: 0, waiting: 0 }, "it had begun to send by itself");
  const sent = JSON.parse(service.posts().at(-1).body).reports;
  assert.deepEqual(
    sent.map((item) => item.id),
    receipts.map(({ id }) => id),
  );
});

test("attempts come further and further apart, and wait as long as the service says", async () => {
  const real = globalThis.setTimeout;
  const planned = [];
  globalThis.setTimeout = (work, delay) => {
    if (delay !== 15000) planned.push([work, delay / 1000]); // not the patience of a request
    return 0;
  };
  try {
    const service = new FakeService();
    const device = deviceOf(service);
    const offer = await device.offer(Z);
    service.trouble.push(...Array(12).fill(503));
    await device.sold(offer, 1);
    for (let n = 1; n < 12; n++) {
      assert.equal(planned.length, n);
      await planned[n - 1][0]();
    }
    planned.forEach(([, delay], n) => {
      const most = Math.min(300, 2 ** n);
      assert.ok(delay > 0.49 * most && delay <= most, `${delay} s after ${n} failures`);
    });
    await planned.at(-1)[0]();
    assert.equal(service.reports.size, 1);
    assert.equal(planned.length, 12, "no further attempt is planned");
    const busy = new Response("", { status: 429, headers: { "Retry-After": "77" } });
    const fetch = (url, init) => (init.body ? busy.clone() : service.fetch(url, init));
    const patient = deviceOf(service, { fetch });
    await patient.sold(await patient.offer(Z), 1);
    assert.equal(planned.at(-1)[1], 77);
    patient.close();
    await patient.flush();
    assert.equal(planned.length, 13, "a closed device plans nothing");
  } finally {
    globalThis.setTimeout = real;
  }
});

test("a page that is not the service's answer acknowledges nothing", async () => {
  const service = new FakeService();
  const counts = ['{"accepted": 0, "known": 0}', '{"accepted": true, "known": 0}'];
  const answers = ["<html>Log in</html>", "{}", "null", ...counts];
  let answer = null;
  const fetch = (url, init) => (answer && init.body ? new Response(answer) : service.fetch(url, init));
  const device = deviceOf(service, { fetch });
  const offer = await device.offer(Z);
  [answer] = answers;
  assert.equal((await device.sold(offer, 1)).sent, false);
  for (answer of answers) assert.deepEqual(await device.flush(), { sent: 0, waiting: 1 });
  answer = null;
  assert.deepEqual(await device.flush(), { sent: 1, waiting: 0 });
});

test("only the service can refuse a report for good", async () => {
  const service = new FakeService();
  const refused = [];
  let answer = null;
  const fetch = (url, init) => (answer && init.body ? new Response(...answer) : service.fetch(url, init));
  const device = deviceOf(service, { fetch, onRefused: (item, status) => refused.push(status) });
  const offer = await device.offer(Z);
  answer = ["<html>Blocked by your hotel</html>", { status: 400 }];
  assert.equal((await device.sold(offer, 1)).sent, false);
  for (const body of ["", "{}", "null", '{"error": "no"}', '{"error": {"code": 3, "message": "no"}}']) {
    for (const status of [400, 409, 413, 422]) {
      answer = [body, { status }];
      assert.deepEqual(await device.flush(), { sent: 0, waiting: 1 });
    }
  }
  assert.deepEqual(refused, []);
  answer = null;
  assert.deepEqual(await device.flush(), { sent: 1, waiting: 0 });
  device.close();
});

test("a report that is refused for good does not block the others", async () => {
  const service = new FakeService();
  const refused = [];
  const device = deviceOf(service, { onRefused: (item, status) => refused.push([item.id, status]) });
  const receipts = [];
  for (let i = 0; i < 3; i++) {
    const offer = await device.offer(Z);
    service.trouble.push(503);
    receipts.push(await device.sold(offer, 1));
  }
  service.trouble.push(422, undefined, 422, undefined); // the list, then one by one
  assert.deepEqual(await device.flush(), { sent: 2, waiting: 0 });
  assert.deepEqual(refused, [[receipts[1].id, 422]]);
  assert.deepEqual([...service.reports.keys()], [receipts[0].id, receipts[2].id]);
});

test("only reports leave, whatever was put into the storage", async () => {
  const service = new FakeService();
  const storage = new MemoryStorage();
  const key = "hushprice:outbox:https://prices.example/v1/products/coffee";
  const id = "0123456789abcdef0123456789abcdef";
  const report_ = { seed: "0123456789abcdef", index: 1 };
  const good = { id, version: 1, report: report_ };
  const foreign = [
    { ...good, id: `${id}0` },
    { ...good, id: "name=Anna" },
    { ...good, version: "0.734251" },
    { ...good, report: { z: [0.734251] } },
    { ...good, report: { grid: [0.734251] } },
    { ...good, report: { seed: "734251", index: 1 } },
    null,
    "734251",
  ];
  const extra = { ...good, z: [0.734251], report: { ...report_, name: "Anna" } };
  storage.setItem(key, JSON.stringify([...foreign, extra, { id, version: 2, report: { grid: [3, -4] } }]));
  const device = deviceOf(service, { storage });
  await device.flush();
  assert.equal(service.posts().length, 1);
  const noise = { id, version: 2, report: { grid: [3, -4] } };
  assert.deepEqual(JSON.parse(service.posts()[0].body), { reports: [good, noise] });
  assert.deepEqual(
    storage
      .getItem(`${key}:damaged`)
      .split("\n")
      .map((line) => JSON.parse(JSON.parse(line))),
    foreign,
    "what was none is laid aside",
  );
  assert.equal(device.damaged, foreign.length);
});

test("an outbox that cannot be read is laid aside and counted, not overwritten", async () => {
  const service = new FakeService();
  const storage = new MemoryStorage();
  const key = "hushprice:outbox:https://prices.example/v1/products/coffee";
  const device = deviceOf(service, { storage });
  const texts = ['[{"id":"0123456789abcdef01', "{}", "3", "two\nlines"];
  for (const [i, text] of texts.entries()) {
    storage.setItem(key, text);
    assert.deepEqual(await device.flush(), { sent: 0, waiting: 0 });
    assert.equal(storage.getItem(key), text);
    assert.equal((await device.sold(await device.offer(Z), 1)).sent, true, "new reports go out");
    assert.equal(device.damaged, i + 1);
  }
  const aside = () =>
    storage
      .getItem(`${key}:damaged`)
      .split("\n")
      .map((line) => JSON.parse(line));
  assert.deepEqual(aside(), texts);
  storage.setItem(key, texts[0]); // as after a crash between the two writes
  await device.sold(await device.offer(Z), 1);
  assert.deepEqual(aside(), texts);
  assert.equal(service.reports.size, 5);
});

test("two tabs send nothing twice and lose nothing", async () => {
  const service = new FakeService();
  const storage = new MemoryStorage();
  const tabs = [1n, 2n, 3n].map((seed) => deviceOf(service, { storage, words: new UnsafeWords(seed) }));
  const sales = tabs.flatMap((tab) => Array.from({ length: 5 }, async () => tab.sold(await tab.offer(Z), 1)));
  const receipts = await Promise.all(sales);
  assert.ok(receipts.every(({ sent }) => sent));
  assert.equal(service.reports.size, 15);
  const items = service.posts().flatMap(({ body }) => JSON.parse(body).reports ?? [JSON.parse(body)]);
  assert.equal(items.length, 15);
  assert.ok(service.posts().length < 15, "those that waited went together");
  assert.equal((await tabs[0].ledger.state()).reports, 15);
});

test("randomness is the operating system's unless an unsafe source is named", async () => {
  const service = new FakeService(document({ phase: "explore" }));
  const device = deviceOf(service, { words: undefined });
  const prices = new Set();
  for (let i = 0; i < 20; i++) {
    const offer = await device.offer(Z);
    prices.add(offer.price);
    await device.sold(offer, 0);
  }
  assert.equal(prices.size, 20);
  assert.equal(new Set([...service.reports.values()].map((item) => item.report.seed)).size, 20);
  assert.throws(() => deviceOf(service, { words: { draw: () => [0n] } }), InvalidInput);
  const unsafe = new UnsafeWords(0n, { price: [1n << 63n] });
  const fixed = deviceOf(service, { words: unsafe });
  assert.equal((await fixed.offer(Z)).price, 3);
  await assert.rejects(fixed.offer(Z), InvalidInput);
});

test("a device requires its options", () => {
  const service = new FakeService();
  const wrong = [
    { product: "Coffee!" },
    { key: "" },
    { key: "a\nb" },
    { promise: { epsilon: 1, clip: 1 } },
    { ledger: undefined },
    { ledger: {} },
    { url: "nowhere" },
  ];
  for (const change of wrong) assert.throws(() => deviceOf(service, change), InvalidInput);
  assert.throws(() => new Device(), InvalidInput);
  assert.match(VERSION, /^\d+\.\d+\.\d+$/);
});

test("an option that is misspelt is refused, as it would protect nobody", async () => {
  const service = new FakeService();
  const device = deviceOf(service);
  assert.throws(() => deviceOf(service, { onsend: () => {} }), { name: "InvalidInput", message: /onsend.*onSend/ });
  assert.throws(() => new Ledger({ epsilon: 1, dleta: 0 }), { name: "InvalidInput", message: /dleta/ });
  await assert.rejects(device.offer(Z, { segmant: "adult" }), { name: "InvalidInput", message: /segmant/ });
  assert.equal(service.requests.length, 0);
});
