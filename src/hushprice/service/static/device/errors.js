/** The errors of this package. */

/** Base class of all errors. Their texts repeat no value of a customer. */
export class HushpriceError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = this.constructor.name;
  }
}

/** An argument is out of its domain. Nothing was changed. */
export class InvalidInput extends HushpriceError {}

/** The server published something that this device does not agree to. No price and no report is made from it. */
export class BrokenPromise extends HushpriceError {}

/** One more report would exceed the customer's budget. No report was made. */
export class BudgetSpent extends HushpriceError {}

/** The ledger cannot be read or written, so no report may be made. */
export class LedgerError extends HushpriceError {}

/** The service cannot be reached, or did not answer as agreed. Trying again later may help. */
export class Unavailable extends HushpriceError {}

/** Refuse unknown options: a misspelt one would protect nobody. */
export function only(options, known, what) {
  const unknown = Object.keys(options).find((name) => !known.includes(name));
  if (unknown !== undefined) {
    throw new InvalidInput(`${what} has no option called ${unknown}. Known: ${known.join(", ")}.`);
  }
}
