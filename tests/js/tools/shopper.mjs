/**
 * A device against a service: `node shopper.mjs orders.json` sells to the customers of a file, one after the other, and
 * prints the quoted prices, every request that was passed to fetch, and the final state of the ledger.
 *
 * Every `lose`-th answer to a report is lost on the way, so that the report has to be sent again.
 */

import fs from "node:fs";

import { Device, Ledger, MemoryStorage, PrivacyPromise, UnsafeWords } from "#device/index.js";

const orders = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));
const { url, key, product, promise, budget, seed, lose, customers } = orders;
const sent = [];

async function fetch(address, init) {
  sent.push({ method: init.method, url: address, body: init.body === null ? "" : new TextDecoder().decode(init.body) });
  const posts = sent.filter(({ method }) => method === "POST").length;
  const answer = await globalThis.fetch(address, init);
  if (init.method === "POST" && lose && posts % lose === 0) throw new TypeError("the answer was lost");
  return answer;
}

const storage = new MemoryStorage();
const device = new Device({
  url,
  key,
  product,
  promise: new PrivacyPromise(promise),
  ledger: new Ledger({ ...budget, storage }),
  storage,
  fetch,
  words: new UnsafeWords(BigInt(seed)),
});
const offers = [];
for (const { context, y } of customers) {
  const offer = await device.offer(context);
  const { id, report, sent: arrived } = await device.sold(offer, y);
  if (!arrived) await device.flush();
  offers.push({ price: offer.price, version: offer.version, experiment: offer.experiment, id, report });
}
const { waiting } = await device.flush();
device.close();
console.log(JSON.stringify({ offers, sent, waiting, ledger: await device.ledger.state() }));
