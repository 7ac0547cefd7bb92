/** A program that uses the declarations of the device as a shop would; `tsc` checks it, nothing runs it. */

import {
  BudgetSpent,
  Device,
  HushpriceError,
  Ledger,
  MemoryStorage,
  Params,
  PrivacyPromise,
  SystemWords,
  UnsafeWords,
  VERSION,
  quote,
  readParams,
  report,
  wordsNeeded,
} from "#device/index.js";

const promise = new PrivacyPromise({ epsilon: 2, clip: 4, prices: [1, 5], features: [["constant", 1], "loyalty"] });
const ledger = new Ledger({ epsilon: 40, storage: new MemoryStorage() });
const device = new Device({
  url: "https://prices.example",
  key: "hp_device_1",
  product: "coffee",
  promise,
  ledger,
  words: new SystemWords(),
  onSend: (bytes, { method, url }) => console.log(bytes.length, method, url),
  onRefused: ({ id }, status) => console.log(id, status),
});

export async function sell(): Promise<string | null> {
  const offer = await device.offer({ loyalty: 0.4 }, { segment: null });
  const price: number = offer.price;
  const { id, report: sold, sent } = await device.sold(offer, price < 3);
  if (!sent) await device.flush();
  if (sold !== null && "seed" in sold) return sold.seed;
  return id;
}

export async function withoutNetwork(document: unknown): Promise<number> {
  const params: Params = readParams(document, PrivacyPromise.of(document));
  const price = quote(params, [1, 0.4], { uniform: 0.5 });
  const words = new UnsafeWords(7n, { report: [1n, 2] }).draw(wordsNeeded(params), "report");
  report(params, new Float64Array([1, 0.4]), price, 1, words);
  await ledger.spend(params.mechanism).catch((problem: unknown) => {
    if (!(problem instanceof BudgetSpent)) throw problem;
    const refusal: HushpriceError = problem;
    console.log(refusal.message, VERSION);
  });
  return (await ledger.state()).cap.epsilon;
}

// What must not compile.

// @ts-expect-error: a promise names its epsilon
new PrivacyPromise({ clip: 4 });
// @ts-expect-error: a mechanism that does not exist
new PrivacyPromise({ epsilon: 2, clip: 4, mechanisms: ["laplace"] });
// @ts-expect-error: a device has a ledger, or null
new Device({ url: "https://prices.example", key: "hp_device_1", product: "coffee", promise });
// @ts-expect-error: parameters come from readParams
new Params();
// @ts-expect-error: the price of an offer is fixed
device.offer([1]).then((offer) => (offer.price = 2));
