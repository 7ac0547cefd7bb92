/** What the device exports: `node exports.mjs` prints every name, with the methods of those that are classes. */

import * as device from "#device/index.js";

function methods(value) {
  const own = Object.getOwnPropertyNames(value.prototype ?? {}).filter((name) => name !== "constructor");
  const builtin = Object.getOwnPropertyNames(class {}).concat("name", "arguments", "caller");
  return own.concat(Object.getOwnPropertyNames(value).filter((name) => !builtin.includes(name)));
}

const exported = Object.entries(device).map(([name, value]) => [
  name,
  typeof value === "function" ? methods(value) : [],
]);
console.log(JSON.stringify(Object.fromEntries(exported)));
