/** The address of the device before it became the folder device/, kept for pages that import it from here. */

export * from "./device/index.js";
