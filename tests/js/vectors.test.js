/** Every test vector, to the last bit. */

import assert from "node:assert/strict";
import { test } from "node:test";

import * as guarantee from "#device/guarantee.js";
import * as kernels from "#device/kernels.js";
import * as numbers from "#device/numbers.js";
import { InvalidInput, quote, readParams, report } from "#device/index.js";
import { generous, vectors, word } from "./fixtures.js";

const privacy = vectors("privacy.json");
const device = vectors("device.json");

/** Equal to the last bit: 0 and -0 differ, NaN is NaN. */
function same(actual, wanted, about) {
  assert.ok(Object.is(actual, wanted), `${about}: ${actual} is not ${wanted}`);
}

function each(section, check) {
  assert.ok(section.length > 0);
  section.forEach((vector, i) => check(vector, `case ${i}`));
}

function sameList(actual, wanted, about) {
  same(actual.length, wanted.length, about);
  wanted.forEach((value, i) => same(actual[i], value, about));
}

test("Philox and normals", () => {
  each(privacy.philox4x64_10, ({ key, counter, words }, about) => {
    sameList(numbers.philox(key.map(word), counter.map(word)), words.map(word), about);
  });
  each(privacy.normal_quantile, ({ u, value }, about) => same(numbers.normalQuantile(u), value, about));
  each(privacy.normal, (vector, about) => same(numbers.normal(word(vector.word)), vector.value, about));
  each(privacy.direction, ({ seed, number, v }, about) => {
    sameList(numbers.direction(word(seed), number, v.length), v, about);
  });
});

test("exp, log and Wright omega", () => {
  each(privacy.log, ({ x, log }, about) => same(numbers.log(x), log, about));
  each(device.log, ({ x, value }, about) => same(numbers.log(x), value, about));
  each(device.exp, ({ x, value }, about) => same(numbers.exp(x), value, about));
  each(device.omega_table, ({ cell, coefficients }, about) => sameList(numbers.omegaCell(cell), coefficients, about));
  each(device.omega, ({ x, value }, about) => same(numbers.omega(x), value, about));
});

test("demand, prices and scores", () => {
  each(device.mean, ({ family, eta, value }, about) => same(kernels.mean(family, eta), value, about));
  each(device.best_price, ({ family, a, b, cost, low, high, price }, about) => {
    same(kernels.bestPrice(family, a, b, cost, low, high), price, about);
  });
  each(device.quote_on_terms, ({ phase, family, a, b, level, u, cost, low, high, ladder, price }, about) => {
    same(kernels.quoteOnTerms(phase, family, a, b, level, u, cost, low, high, ladder), price, about);
  });
  each(device.score, ({ family, theta, z, price, y, shift, factor, g }, about) => {
    sameList(kernels.score(family, theta, z, price, y, shift, factor), g, about);
  });
});

test("coins", () => {
  each([...privacy.coin, ...device.coin], ({ epsilon, inside, outside, coin }, about) => {
    same(guarantee.fairCoin(epsilon, inside, outside), word(coin), about);
  });
});

test("noise levels that keep a promise and ones that do not", () => {
  each(device.gaussian, ({ holds, ...vector }, about) => {
    const loss = guarantee.lossOf({ name: "gaussian", ...vector });
    same(guarantee.lossDelta(loss, vector.epsilon) <= vector.delta, holds, about);
  });
});

test("reports", () => {
  const vectorReports = privacy.report.filter((vector) => vector.mechanism.name !== "randomized-response");
  each(vectorReports, ({ mechanism, g, words, report: wanted }) => {
    const { pairs = 1, top = 1, coin = "0" } = mechanism;
    const actual = kernels.privatize({ ...mechanism, pairs, top, coin: word(coin) }, g, words.map(word));
    assert.deepEqual(actual, wanted);
  });
});

test("prices of the shop's own", () => {
  each(device.own_price, ({ params: published, segment, price, taken }, about) => {
    const params = readParams(published, generous(published));
    const quoted = () => quote(params, [1, 0.5, 0.25], { segment, price });
    if (taken) same(quoted(), price, about);
    else assert.throws(quoted, InvalidInput, about);
  });
});

test("whole sessions", () => {
  each(device.sessions, ({ params: published, customers }) => {
    const params = readParams(published, generous(published));
    each(customers, ({ z, segment, cost, words, price, y, experiment, report: wanted }, about) => {
      const drawn = words.map(word);
      const uniform = experiment ? numbers.uniformOf(drawn.shift()) : 0;
      same(quote(params, z, { segment, cost, uniform }), price, about);
      if (params.learn) assert.deepEqual(report(params, z, price, y, drawn), wanted);
      else assert.equal(wanted, null);
    });
  });
});
