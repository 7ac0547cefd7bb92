/**
 * Which documents the device takes: `node params.mjs cases.json`, a list of [promise, text of the document].
 */

import fs from "node:fs";

import { BrokenPromise, PrivacyPromise, readParams } from "#device/index.js";

function takes([promise, text]) {
  try {
    readParams(JSON.parse(text), new PrivacyPromise(promise));
    return true;
  } catch (problem) {
    if (problem instanceof BrokenPromise) return false;
    throw problem;
  }
}

console.log(JSON.stringify(JSON.parse(fs.readFileSync(process.argv[2], "utf8")).map(takes)));
