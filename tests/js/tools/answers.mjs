/**
 * Answers the questions in a file that another program wrote: `node answers.mjs questions.json`.
 *
 * Floating-point numbers are written as "f:" and the 16 hexadecimal digits of their bits, both ways, so that
 * none changes and infinities, NaN and -0 are distinct.
 */

import fs from "node:fs";

import { fairCoin, gaussianDelta, lossDelta, lossOf } from "#device/guarantee.js";
import { bestPrice, mean, privatize, quoteOnTerms, score } from "#device/kernels.js";
import { direction, hex, normalQuantile, omega, uniformOf } from "#device/numbers.js";
import { BudgetSpent, Ledger, PrivacyPromise, quote, readParams, report } from "#device/index.js";

const view = new DataView(new ArrayBuffer(8));

function decoded(x) {
  if (typeof x === "string" && x.startsWith("f:")) {
    view.setBigUint64(0, BigInt(`0x${x.slice(2)}`));
    return view.getFloat64(0);
  }
  if (Array.isArray(x)) return x.map(decoded);
  if (typeof x !== "object" || x === null) return x;
  return Object.fromEntries(Object.entries(x).map(([key, value]) => [key, decoded(value)]));
}

function encoded(x) {
  view.setFloat64(0, x);
  return `f:${hex(view.getBigUint64(0))}`;
}

const word = (text) => BigInt(`0x${text}`);

function session({ params: published, customers }) {
  const { family, segments } = published;
  const params = readParams(published, new PrivacyPromise({ epsilon: 30, delta: 0.5, clip: 1e12, family, segments }));
  return customers.map(({ z, segment, cost, y, words }) => {
    const drawn = words.map(word);
    const uniform = params.phase === "explore" ? uniformOf(drawn.shift()) : 0;
    const price = quote(params, z, { segment, cost, uniform });
    return { price: encoded(price), report: params.learn ? report(params, z, price, y, drawn) : null };
  });
}

async function reportsAllowed({ epsilon, delta, mechanisms }) {
  const ledger = new Ledger({ epsilon, delta });
  for (let n = 0; ; n++) {
    try {
      await ledger.spend(mechanisms[n % mechanisms.length]);
    } catch (problem) {
      if (problem instanceof BudgetSpent) return n;
      throw problem;
    }
  }
}

const ANSWERS = {
  mean: (question) => encoded(mean(...question)),
  omega: (question) => encoded(omega(...question)),
  quantile: (question) => encoded(normalQuantile(...question)),
  direction: ([seed, number, n]) => Array.from(direction(word(seed), number, n), encoded),
  best_price: (question) => encoded(bestPrice(...question)),
  quote: (question) => encoded(quoteOnTerms(...question)),
  score: (question) => Array.from(score(...question), encoded),
  report: ({ mechanism, g, words }) => {
    return privatize({ ...mechanism, coin: word(mechanism.coin) }, Float64Array.from(g), words.map(word));
  },
  coin: ([epsilon, inside, outside]) => hex(fairCoin(epsilon, inside, outside)),
  delta: ([epsilon, mu]) => encoded(gaussianDelta(epsilon, mu)),
  keeps: ({ epsilon, delta, ...mechanism }) => lossDelta(lossOf({ name: "gaussian", ...mechanism }), epsilon) <= delta,
  session,
  ledger: reportsAllowed,
};

const questions = decoded(JSON.parse(fs.readFileSync(process.argv[2], "utf8")));
const answers = {};
for (const [name, cases] of Object.entries(questions)) {
  answers[name] = [];
  for (const question of cases) answers[name].push(await ANSWERS[name](question));
}
console.log(JSON.stringify(answers));
