/** A device refuses a server that asks for more than it promised, or publishes what cannot be. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { BrokenPromise, InvalidInput, Params, PrivacyPromise, quote, readParams, report } from "#device/index.js";
import { document, promise, vectors } from "./fixtures.js";

const mechanism = (more) => ({ mechanism: { ...document().mechanism, ...more } });

test("parameters within the promise are read", () => {
  const params = readParams(document(), promise());
  assert.equal(params.version, 12);
  assert.equal(params.mechanism.coin, 16247838278329192790n); // e^2 / (e^2 + 1) of 2^64
  assert.ok(Object.isFrozen(params) && Object.isFrozen(params.mechanism) && Object.isFrozen(params.theta));
  assert.ok(readParams(document(mechanism({ epsilon: 0.5, clip: 3 })), promise()));
  assert.ok(readParams(document(mechanism({ clip: 4.000000000000001 })), promise()), "a rounding is no broken promise");
  assert.ok(readParams(document({ guardrails: { low: null, high: 3 } }), promise()));
  assert.ok(readParams(document({ features: [] }), promise()));
});

const BROKEN = {
  "a larger epsilon": mechanism({ epsilon: 2.0000001 }),
  "a delta": mechanism({ delta: 1e-9 }),
  "a larger clip": mechanism({ clip: 4.00001 }),
  "an unknown mechanism": mechanism({ name: "laplace" }),
  "a mechanism of an object's own": mechanism({ name: "constructor" }),
  "a mechanism for other vectors": mechanism({ dim: 8 }),
  "more pairs than l2-ball has": mechanism({ pairs: 2 }),
  "more best directions than pairs": mechanism({ name: "privunit", pairs: 4, top: 5 }),
  "more work than a report is worth": {
    dim: 65,
    theta: Array(130).fill(0),
    centre: Array(130).fill(0),
    features: [],
    mechanism: { ...document().mechanism, name: "privunit", dim: 130, pairs: 1024, top: 5 },
  },
  "another family": { family: "poisson" },
  "segments of its own": { segments: ["gold"] },
  "too many pairs": mechanism({ name: "privunit", pairs: 4096, top: 5 }),
  "half a pair": mechanism({ name: "privunit", pairs: 4.5, top: 1 }),
  "noise without noise": mechanism({ sd: 1 }),
  "no mechanism": { mechanism: null },
  "epsilon as text": mechanism({ epsilon: "1" }),
  "theta outside its ball": { theta: [4, 3, 0, 0, 0, 0] },
  "theta far outside its ball": { theta: [1e200, 0, 0, 0, 0, 0] },
  "theta of another length": { theta: [1, 1] },
  "theta not finite": { theta: [Infinity, 0, 0, 0, 0, 0] },
  "theta not a number": { theta: [NaN, 0, 0, 0, 0, 0] },
  "a hole in theta": { theta: [null, 0, 0, 0, 0, 0] },
  "a ball without end": { radius: Infinity },
  "a ball too large": { radius: 1e7 },
  "a centre too far out": { centre: [1e7, 0, 0, 0, 0, 0], theta: [1e7, 0, 0, 0, 0, 0] },
  "an unknown phase": { phase: "perturb" },
  "an unknown mode": { mode: "dead" },
  "an unknown family": { family: "gamma" },
  "another protocol": { protocol: 2 },
  "another format": { format: "hushprice snapshot" },
  "no version": { version: -1 },
  "half a version": { version: 1.5 },
  "no word on learning": { learn: 1 },
  "prices upside down": { prices: [5, 1] },
  "negative prices": { prices: [-1, 5] },
  "experiments outside the prices": { experiments: [0.5, 5] },
  "guardrails outside the prices": { guardrails: { low: 0, high: 5 } },
  "no guardrails": { guardrails: null },
  "a falling ladder": { ladder: [2, 1.5] },
  "a ladder out of reach": { ladder: [0.5, 6] },
  "a range of nobody": { ranges: { student: [1, 2] } },
  "a range outside the prices": { segments: ["student"], ranges: { student: [1, 9] } },
  "the same segment twice": { segments: ["a", "a"] },
  "a level that is no price": { level: NaN },
  "no score": { score: null },
  "a score without a factor": { score: { shift: 1 } },
  "a feature too few": { features: [{ name: "constant", value: 1 }] },
  "the same feature twice": { features: ["a", "a", "b"].map((name) => ({ name, low: 0, high: 1 })) },
  "a negative cost": { cost: -1 },
};

for (const [what, change] of Object.entries(BROKEN)) {
  test(`refuses ${what}`, () => {
    const segments = what === "segments of its own" ? [] : [...new Set(change.segments ?? [])];
    assert.throws(() => readParams(document(change), promise({ segments })), BrokenPromise);
  });
}

test("a document that lacks any of its fields is refused", () => {
  for (const name of Object.keys(document())) {
    const rest = document();
    delete rest[name];
    assert.throws(() => readParams(rest, promise()), BrokenPromise, name);
  }
  for (const nothing of [null, undefined, 3, "text", [], {}]) {
    assert.throws(() => readParams(nothing, promise()), BrokenPromise);
  }
});

test("takes the documents of the test vectors that must be taken, and no other", () => {
  const { refused } = vectors("device.json");
  assert.ok(refused.length > 10);
  for (const { why, promise: limits, params } of refused) {
    const own = new PrivacyPromise(limits);
    if (why === null) assert.ok(readParams(params, own));
    else assert.throws(() => readParams(params, own), BrokenPromise, why);
  }
});

test("Gaussian noise must be enough for epsilon and delta", () => {
  const noise = { name: "gaussian", epsilon: 0.5, delta: 1e-3, clip: 2, sd: 18.55 }; // 18.44 with 4 numbers
  const own = promise({ delta: 1e-3 });
  assert.ok(readParams(document(mechanism(noise)), own));
  for (const change of [{ sd: 18.4 }, { sd: 0 }, { sd: NaN }, { epsilon: 0.49 }, { delta: 9e-4 }, { delta: 0 }]) {
    assert.throws(() => readParams(document(mechanism({ ...noise, ...change })), own), BrokenPromise);
  }
  assert.throws(() => readParams(document(mechanism(noise)), promise()), BrokenPromise);
});

test("a promise may leave out mechanisms and bound prices", () => {
  assert.throws(() => readParams(document(), promise({ mechanisms: ["privunit"] })), BrokenPromise);
  assert.throws(() => readParams(document(), promise({ prices: [1, 4] })), BrokenPromise);
  assert.ok(readParams(document(), promise({ mechanisms: ["l2-ball"], prices: [0, 5] })));
});

test("what customers there are is promised, and no document says otherwise", () => {
  const pins = [["constant", 1], "loyalty", "distance"];
  assert.ok(readParams(document(), promise({ features: pins })));
  const { features } = document();
  const others = [
    [],
    [features[1], features[0], features[2]],
    [features[0], { name: "loyalty", value: 0.4 }, features[2]],
    [{ name: "constant", low: 0, high: 1 }, features[1], features[2]],
    [{ name: "constant", value: 2 }, features[1], features[2]],
    [features[0], features[1], { name: "age", low: 0, high: 1 }],
  ];
  for (const other of others) {
    assert.throws(() => readParams(document({ features: other }), promise({ features: pins })), BrokenPromise);
  }
  const changed = [features[0], { name: "loyalty", low: -3, high: 7 }, features[2]]; // ranges may change
  assert.ok(readParams(document({ features: changed }), promise({ features: pins })));
  const segments = ["student", "adult"];
  assert.ok(readParams(document({ segments: ["adult", "student"] }), promise({ segments })));
  for (const other of [[], ["adult"], ["adult", "student", "gold"], ["adult", "gold"]]) {
    assert.throws(() => readParams(document({ segments: other }), promise({ segments })), BrokenPromise);
  }
  assert.throws(() => readParams(document(), promise({ family: "linear" })), BrokenPromise);
});

test("a promise made of a document is exactly what it asks for, and survives JSON", () => {
  const published = document({ family: "poisson", segments: ["adult", "student"] });
  const made = PrivacyPromise.of(published);
  const again = new PrivacyPromise(JSON.parse(JSON.stringify(made)));
  assert.deepEqual(again, made);
  assert.ok(readParams(published, again));
  const changes = [{ family: "linear" }, { segments: [] }, { features: [] }, { prices: [0.5, 5] }];
  for (const change of [...changes, mechanism({ epsilon: 2.1 }), mechanism({ name: "privunit" })]) {
    assert.throws(() => readParams({ ...published, ...change }, again), BrokenPromise);
  }
  assert.ok(readParams(document({ features: [] }), PrivacyPromise.of(document({ features: [] }))));
  const lacking = ["prices", "family", "segments", "features"].map((name) => document({ [name]: undefined }));
  for (const nothing of [null, {}, document({ mechanism: {} }), document({ features: 3 }), ...lacking]) {
    assert.throws(() => PrivacyPromise.of(nothing), BrokenPromise);
  }
});

test("texts of a broken promise have few digits, or as many as it takes", () => {
  const text = (asked, own) => {
    try {
      readParams(document(mechanism(asked)), own);
    } catch (problem) {
      return problem.message;
    }
  };
  assert.match(text({ clip: 3.9999999999999996 }, promise({ clip: 3.5 })), /clip = 4; 3\.5 is promised/);
  assert.match(text({ epsilon: 2.0000000000000004 }, promise()), /epsilon = 2\.0000000000000004; 2 is promised/);
});

test("an invalid promise is refused", () => {
  const numbers = [{ epsilon: 0 }, { epsilon: 31 }, { clip: -1 }, { delta: 1 }, { prices: [2, 1] }];
  const customers = [{ family: "tobit" }, { segments: "ab" }, { segments: ["a", "a"] }, { segments: [""] }];
  const features = [[], "ab", [1], ["a", "a"], ["a", ["a", 1]], [["a"]], [["a", NaN]], [["a", "1"]]];
  const wrong = [...numbers, { mechanisms: [] }, { mechanisms: ["x"] }, ...customers];
  for (const change of [...wrong, ...features.map((one) => ({ features: one }))]) {
    assert.throws(() => promise(change), InvalidInput);
  }
  assert.throws(() => new PrivacyPromise(), InvalidInput);
  assert.throws(() => readParams(document(), { epsilon: 30, clip: 100 }), InvalidInput);
});

test("prices and reports are made from checked parameters only", () => {
  assert.throws(() => quote(document(), [1, 1, 1]), InvalidInput);
  assert.throws(() => report(document(), [1, 1, 1], 2, 1, [1n, 2n, 3n]), InvalidInput);
  assert.throws(() => new Params(null, document()), InvalidInput);
});

test("contexts by name or in order, and refusals that tell nothing of them", () => {
  const params = readParams(document(), promise());
  const price = quote(params, [1, 0.25, -0.5]);
  assert.equal(quote(params, { loyalty: 0.25, distance: -0.5 }), price);
  assert.equal(quote(params, Float64Array.of(1, 0.25, -0.5)), price);
  const secret = 0.123456;
  const wrong = [
    { loyalty: secret },
    { loyalty: secret, distance: 0, age: 3 },
    { loyalty: secret, distance: 0, constant: 2 },
    { loyalty: secret, distance: 0, constant: 1 }, // no constant by name, whatever its value
    { loyalty: secret, constant: 1 },
    { loyalty: `${secret}`, distance: 0 },
    [1, secret],
    [1, secret, NaN],
    [1, secret, 1e13],
    `${secret}`,
    null,
  ];
  for (const z of wrong) {
    assert.throws(
      () => quote(params, z),
      (problem) => problem instanceof InvalidInput && !problem.message.includes("123"),
    );
  }
});

test("segments, costs and prices of one's own", () => {
  const ranges = { segments: ["adult", "student"], ranges: { student: [1, 1.5] } };
  const own = promise({ segments: ["student", "adult"] });
  const params = readParams(document(ranges), own);
  assert.equal(quote(params, [1, 0, 0], { segment: "student" }), 1.5);
  assert.ok(quote(params, [1, 0, 0], { segment: "adult", cost: 3 }) > 4);
  for (const wrong of [{}, { segment: "child" }, { segment: "adult", cost: -1 }, { segment: "adult", cost: NaN }]) {
    assert.throws(() => quote(params, [1, 0, 0], wrong), InvalidInput);
  }
  assert.throws(() => quote(readParams(document(), promise()), [1, 0, 0], { segment: "adult" }), InvalidInput);
  const fixed = readParams(document({ ...ranges, phase: "fixed", level: 3, mode: "shadow" }), own);
  assert.equal(quote(fixed, [1, 0, 0], { segment: "adult" }), 3);
  assert.equal(quote(fixed, [1, 0, 0], { segment: "student" }), 1.5);
  assert.equal(quote(fixed, [1, 0, 0], { segment: "adult", price: 4.25 }), 4.25);
  for (const price of [4.25, NaN, "1.25"]) {
    assert.throws(
      () => quote(fixed, [1, 0, 0], { segment: "student", price }),
      (problem) => problem instanceof InvalidInput && !/[0-9]|student/.test(problem.message), // no word of the segment
    );
  }
  assert.throws(() => quote(fixed, [1, 0, 0], { segment: "adult", price: 4.25, cost: -1 }), InvalidInput);
  assert.throws(() => quote(params, [1, 0, 0], { segment: "adult", price: 4.25 }), InvalidInput);
});

test("outcomes that the family cannot have are refused", () => {
  const cases = {
    logistic: [2, 0.5, NaN, "1", null],
    poisson: [-1, 0.5, Infinity],
    linear: [NaN, "2"],
    probit: [2, 0.5, NaN],
  };
  for (const [family, wrong] of Object.entries(cases)) {
    const params = readParams(document({ family }), promise({ family }));
    assert.ok(report(params, [1, 0, 0], 2, true, [1n, 2n, 3n]));
    for (const y of wrong) assert.throws(() => report(params, [1, 0, 0], 2, y, [1n, 2n, 3n]), InvalidInput);
    assert.throws(() => report(params, [1, 0, 0], 9, 1, [1n, 2n, 3n]), InvalidInput);
    assert.throws(() => report(params, [1, 0, 0], 2, 1, [1n, 2n]), InvalidInput);
  }
});

test("misspelt options of a promise are refused", () => {
  for (const wrong of ["price", "delat", "mechanism"]) {
    const terms = { epsilon: 2, clip: 4, [wrong]: 1 };
    assert.throws(() => new PrivacyPromise(terms), { name: "InvalidInput", message: new RegExp(`called ${wrong}`) });
  }
  assert.deepEqual(new PrivacyPromise(JSON.parse(JSON.stringify(promise()))), promise());
});
