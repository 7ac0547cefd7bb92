/** What can go wrong. */

/** Base of every refusal. Texts name no value of a customer. */
export class HushpriceError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = this.constructor.name;
  }
}

/** An argument is out of its domain; nothing was changed. */
export class InvalidInput extends HushpriceError {}

/** The server published what this device does not agree to: no price and no report is made from it. */
export class BrokenPromise extends HushpriceError {}

/** One more report would exceed the customer's budget; none was made. */
export class BudgetSpent extends HushpriceError {}

/** The ledger cannot be read or kept, so that no report may be made. */
export class LedgerError extends HushpriceError {}

/** The service cannot be reached, or did not answer as agreed. Trying again later may help. */
export class Unavailable extends HushpriceError {}

/** Refuse options that are not known: one that was misspelt would protect nobody. */
export function only(given, known, what) {
  const unknown = Object.keys(given).find((name) => !known.includes(name));
  if (unknown !== undefined) {
    throw new InvalidInput(`${what} has no option called ${unknown}. Known: ${known.join(", ")}.`);
  }
}
