/** Rules for the JavaScript: the device and the pages run in browsers, the device and the tests in Node. */

import js from "@eslint/js";
import globals from "globals";

const STATIC = "src/hushprice/service/static";

export default [
  js.configs.recommended,
  {
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      curly: ["error", "multi-line"],
      eqeqeq: "error",
      "no-shadow": "error",
      "no-var": "error",
      "object-shorthand": "error",
      "prefer-const": "error",
    },
  },
  { files: [`${STATIC}/**/*.js`], languageOptions: { globals: globals.browser } },
  { files: [`${STATIC}/device/*.js`], languageOptions: { globals: globals["shared-node-browser"] } },
  { files: ["tests/js/**/*.js", "tests/js/**/*.mjs"], languageOptions: { globals: globals.node } },
];
