/** The customer's side of a private product of a hushprice service. See README.md for an example. */

/** The release. */
export declare const VERSION: string;

// -- refusals ---------------------------------------------------------------------------------------------------------

/** Base of every refusal. Texts name no value of a customer. */
export declare class HushpriceError extends Error {}
/** An argument is out of its domain; nothing was changed. */
export declare class InvalidInput extends HushpriceError {}
/** The server published what this device does not agree to: no price and no report is made from it. */
export declare class BrokenPromise extends HushpriceError {}
/** One more report would exceed the customer's budget; none was made. */
export declare class BudgetSpent extends HushpriceError {}
/** The ledger cannot be read or kept, so that no report may be made. */
export declare class LedgerError extends HushpriceError {}
/** The service cannot be reached, or did not answer as agreed. Trying again later may help. */
export declare class Unavailable extends HushpriceError {}

// -- the promise ------------------------------------------------------------------------------------------------------

export type MechanismName = "l2-ball" | "privunit" | "gaussian";
export type Family = "linear" | "logistic" | "poisson";
/** A feature's name, or the name and the value of a constant one. */
export type PinnedFeature = string | readonly [string, number];

/** What this device agrees to at most, in one report, whatever the server asks for. */
export declare class PrivacyPromise {
  constructor(options: {
    /** No report may be more than e^epsilon times as likely from one customer as from another. */
    epsilon: number;
    /** But for this chance (Gaussian noise only); 0 unless given. */
    delta?: number;
    /** Bound on the length of the score that a report is about. */
    clip: number;
    /** Those that may be used; all unless given. */
    mechanisms?: readonly MechanismName[];
    /** A range that no price may leave. */
    prices?: readonly [number, number] | null;
    /** Of demand, which says what outcomes there are; "logistic" (0 or 1) unless given. */
    family?: Family;
    /** All segments that a customer may be of; none unless given. */
    segments?: readonly string[];
    /** In the order of the context; unless given, any, and then those of the first parameters that are read. */
    features?: readonly PinnedFeature[] | null;
  });
  /** Exactly what a params document asks for: to be made once and kept, as JSON if need be. */
  static of(document: unknown): PrivacyPromise;
  readonly epsilon: number;
  readonly delta: number;
  readonly clip: number;
  readonly mechanisms: readonly MechanismName[];
  readonly prices: readonly [number, number] | null;
  readonly family: Family;
  readonly segments: readonly string[];
  readonly features: readonly PinnedFeature[] | null;
}

// -- parameters -------------------------------------------------------------------------------------------------------

/** How reports are made. The coin was worked out on this device. */
export interface Mechanism {
  readonly name: MechanismName;
  readonly epsilon: number;
  readonly delta: number;
  readonly clip: number;
  readonly dim: number;
  readonly pairs: number;
  readonly top: number;
  readonly coin: bigint;
  readonly sd: number;
}

/** A number of the context by name: a constant, or one between low and high (for show, not a limit). */
export type Feature = { readonly name: string } & (
  | { readonly value: number; readonly low?: undefined; readonly high?: undefined }
  | { readonly value?: undefined; readonly low: number; readonly high: number }
);

/** Published parameters that were checked against a promise; made by readParams. */
export declare class Params {
  private constructor();
  readonly product: string;
  readonly mode: "live" | "shadow" | "frozen";
  readonly version: number;
  readonly family: Family;
  readonly dim: number;
  readonly prices: readonly [number, number];
  readonly ladder: readonly number[];
  /** The range of prices in force of each segment; of everyone under null where there are no segments. */
  readonly terms: ReadonlyMap<string | null, readonly [number, number]>;
  readonly cost: number;
  readonly phase: "explore" | "exploit" | "fixed";
  readonly level: number;
  readonly learn: boolean;
  readonly theta: readonly number[];
  readonly shift: number;
  readonly factor: number;
  readonly mechanism: Mechanism;
  readonly features: readonly Feature[];
  /** A copy of the document as it was published. */
  readonly document: Readonly<Record<string, unknown>>;
}

/** Numbers in the order of the features, or by the names of those that are no constants. */
export type Context = ArrayLike<number> | Readonly<Record<string, number>>;
/** All that is said about a sale. */
export type Report = { seed: string; index: number } | { grid: number[] };

/** Parameters from a published document; BrokenPromise for what is more than the promise, damaged or unknown. */
export declare function readParams(document: unknown, promise: PrivacyPromise): Params;

export interface Terms {
  /** The customer's segment, where the product has segments. */
  segment?: string | null;
  /** The cost of a unit for this customer, if it is not the product's. */
  cost?: number | null;
  /** The shop's own price: mode shadow only, and within the range that a price for this customer could have. */
  price?: number | null;
}

/** The price for a context. `uniform`, a random number in [0, 1), decides a price experiment. */
export declare function quote(params: Params, z: Context, terms?: Terms & { uniform?: number }): number;

/** How many random words of 64 bits a report takes. */
export declare function wordsNeeded(params: Params): number;

/** The randomised report of a sale. The words must be random, and used once. */
export declare function report(
  params: Params,
  z: Context,
  price: number,
  y: number | boolean,
  words: readonly bigint[],
): Report;

// -- randomness -------------------------------------------------------------------------------------------------------

export type Purpose = "price" | "report" | "id";

/** The operating system's random words. */
export declare class SystemWords {
  draw(n: number, purpose?: Purpose): bigint[];
}

/** Words that anyone who knows the seed can recompute, and with them the customer's data. For tests alone. */
export declare class UnsafeWords {
  constructor(seed?: bigint | number, streams?: Partial<Record<Purpose, Iterable<bigint | number>>>);
  draw(n: number, purpose: Purpose): bigint[];
}

// -- the ledger -------------------------------------------------------------------------------------------------------

/** What localStorage offers; promises are fine too. */
export interface KeyValueStorage {
  getItem(key: string): string | null | Promise<string | null>;
  setItem(key: string, text: string): void | Promise<void>;
  removeItem(key: string): void | Promise<void>;
}

/** Storage that lives as long as this object. */
export declare class MemoryStorage implements KeyValueStorage {
  getItem(key: string): string | null;
  setItem(key: string, text: string): void;
  removeItem(key: string): void;
}

/** A budget (epsilon, delta) for all the reports of one customer, which is never exceeded. */
export declare class Ledger {
  constructor(options: {
    epsilon: number;
    delta?: number;
    /** localStorage in browsers (where there are locks: on https pages), memory elsewhere. */
    storage?: KeyValueStorage;
    /** Of the customer, where several share a storage. */
    name?: string;
  });
  /** Charge one report, or refuse with BudgetSpent and charge nothing. */
  spend(mechanism: Mechanism): Promise<void>;
  /** Whether one more report fits. */
  allows(mechanism: Mechanism): Promise<boolean>;
  /** The cap, the reports so far, and the epsilon they spent together at the cap's delta. */
  state(): Promise<{ cap: { epsilon: number; delta: number }; reports: number; spent: number }>;
}

// -- the device -------------------------------------------------------------------------------------------------------

/** A price for a customer, of whom it shows nothing. */
export declare class Offer {
  private constructor();
  readonly price: number;
  readonly version: number;
  /** Whether the price was drawn to learn from. */
  readonly experiment: boolean;
}

/** What leaves a device of one sale. */
export interface Item {
  readonly id: string;
  readonly version: number;
  /** null where no report is asked for or the budget is spent; while experiments are asked for it tells the latter. */
  readonly report: Report | null;
}

export interface DeviceOptions {
  /** Of the service, as in "https://prices.example". */
  url: string;
  /** An API key of role device. */
  key: string;
  product: string;
  promise: PrivacyPromise;
  /** null leaves uncounted what many reports give away. */
  ledger: Ledger | null;
  /** For reports not yet sent: localStorage in browsers (where there are locks), memory elsewhere. */
  storage?: KeyValueStorage;
  fetch?: typeof globalThis.fetch;
  /** The operating system's unless given. */
  words?: SystemWords | UnsafeWords;
  /** Seconds, for the age of parameters. */
  now?: () => number;
  /** Told of every request before it is made, with the very bytes of its body (none for GET). */
  onSend?: (bytes: Uint8Array, about: { method: string; url: string; headers: Record<string, string> }) => void;
  /** Told of reports that the service will never take. */
  onRefused?: (item: Item, status: number) => void;
}

/** A device: prices for its customer, and reports. */
export declare class Device {
  constructor(options: DeviceOptions);
  readonly ledger: Ledger | null;
  /** Reports found damaged in the storage since this object was made; laid aside there, and not sent. */
  readonly damaged: number;
  /**
   * The parameters in force, checked against the promise. Ones of an earlier version, or others of the same version,
   * are taken if they stay: a service that was restored from a backup. What a product never changes may not change.
   */
  params(): Promise<Params>;
  /** The price for a context, which never leaves this device. */
  offer(z: Context, terms?: Terms): Promise<Offer>;
  /** What came of an offer. Makes its one report and sends it, now or later; the same again resolves to the same. */
  sold(offer: Offer, y: number | boolean): Promise<Item & { readonly sent: boolean }>;
  /** Send what waits, now. */
  flush(): Promise<{ sent: number; waiting: number }>;
  /** Stop trying in the background. Reports that wait stay in the storage. */
  close(): void;
}
