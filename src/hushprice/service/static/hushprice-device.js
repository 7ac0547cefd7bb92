/** The former address of device/index.js, for pages that still import it from here. */

export * from "./device/index.js";
