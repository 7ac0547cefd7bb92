/** The customer's side of a private product of a hushprice service. See README.md for an example. */

/** The release. */
export declare const VERSION: string;

// -- refusals ---------------------------------------------------------------------------------------------------------

/** Base class of all errors. Their texts repeat no value of a customer. */
export declare class HushpriceError extends Error {}
/** An argument is out of its domain. Nothing was changed. */
export declare class InvalidInput extends HushpriceError {}
/** The server published something that this device does not agree to. No price and no report is made from it. */
export declare class BrokenPromise extends HushpriceError {}
/** One more report would exceed the customer's budget. No report was made. */
export declare class BudgetSpent extends HushpriceError {}
/** The ledger cannot be read or written, so no report may be made. */
export declare class LedgerError extends HushpriceError {}
/** The service cannot be reached, or did not answer as agreed. Trying again later may help. */
export declare class Unavailable extends HushpriceError {}

// -- the promise ------------------------------------------------------------------------------------------------------

export type MechanismName = "l2-ball" | "privunit" | "gaussian";
export type Family = "linear" | "logistic" | "poisson" | "probit";
/** The name of a feature, or the name and value of a constant. */
export type PinnedFeature = string | readonly [string, number];

/** Limits that the author of the shop's app fixes on the device and shows to the customer. */
export declare class PrivacyPromise {
  constructor(options: {
    /** No report may be more than e^epsilon times as likely from one customer as from another. */
    epsilon: number;
    /** Probability with which that may fail (Gaussian noise only). Default: 0. */
    delta?: number;
    /** Largest bound on the length of a score. */
    clip: number;
    /** Names of the mechanisms that may be used. Default: all. */
    mechanisms?: readonly MechanismName[];
    /** Range that no price may leave. Default: any price. */
    prices?: readonly [number, number] | null;
    /** Family of demand, and so the possible outcomes. Default: "logistic" (0 or 1). */
    family?: Family;
    /** The segments of customers. Default: none. */
    segments?: readonly string[];
    /** The entries of the context in order. Default: those of the first parameters that are read. */
    features?: readonly PinnedFeature[] | null;
  });
  /** The promise that allows exactly what a params document asks for. Review it once and store it, for example as JSON. */
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

/** How reports are made. The coin is computed on this device. */
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

/** A named entry of the context: a constant, or a number usually between low and high (for display, not a limit). */
export type Feature = { readonly name: string } & (
  | { readonly value: number; readonly low?: undefined; readonly high?: undefined }
  | { readonly value?: undefined; readonly low: number; readonly high: number }
);

/** Published parameters, checked against a promise; made by readParams. */
export declare class Params {
  private constructor();
  readonly product: string;
  readonly mode: "live" | "shadow" | "frozen";
  readonly version: number;
  readonly family: Family;
  readonly dim: number;
  readonly prices: readonly [number, number];
  readonly ladder: readonly number[];
  /** The current range of prices per segment; without segments, one range under null. */
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
  /** A copy of the published document. */
  readonly document: Readonly<Record<string, unknown>>;
}

/** All numbers in the order of the features, or exactly the features that are not constants by name. */
export type Context = ArrayLike<number> | Readonly<Record<string, number>>;
/** A randomised report: all that leaves the device about a sale. */
export type Report = { seed: string; index: number } | { grid: number[] };

/** Read a params document. Throws BrokenPromise if it asks for more than the promise, is damaged or is unknown. */
export declare function readParams(document: unknown, promise: PrivacyPromise): Params;

export interface Terms {
  /** The customer's segment, if the product has segments. */
  segment?: string | null;
  /** Unit cost of this sale. Default: the product's. */
  cost?: number | null;
  /** The shop's own price, in mode shadow only, within the range of prices for this customer. */
  price?: number | null;
}

/** The price for a context. `uniform`, a random number in [0, 1), determines the price of an experiment. */
export declare function quote(params: Params, z: Context, terms?: Terms & { uniform?: number }): number;

/** Number of random 64-bit words per report. */
export declare function wordsNeeded(params: Params): number;

/** The randomised report of a sale. The words must be random and used only once. */
export declare function report(
  params: Params,
  z: Context,
  price: number,
  y: number | boolean,
  words: readonly bigint[],
): Report;

// -- randomness -------------------------------------------------------------------------------------------------------

export type Purpose = "price" | "report" | "id";

/** Random words from the operating system. */
export declare class SystemWords {
  draw(n: number, purpose?: Purpose): bigint[];
}

/** Words from a seed, for tests only: anyone who knows the seed can recompute them and with them the customer's data. */
export declare class UnsafeWords {
  constructor(seed?: bigint | number, streams?: Partial<Record<Purpose, Iterable<bigint | number>>>);
  draw(n: number, purpose: Purpose): bigint[];
}

// -- the ledger -------------------------------------------------------------------------------------------------------

/** The interface of localStorage; its methods may also return promises. */
export interface KeyValueStorage {
  getItem(key: string): string | null | Promise<string | null>;
  setItem(key: string, text: string): void | Promise<void>;
  removeItem(key: string): void | Promise<void>;
}

/** Storage for the lifetime of this object. */
export declare class MemoryStorage implements KeyValueStorage {
  getItem(key: string): string | null;
  setItem(key: string, text: string): void;
  removeItem(key: string): void;
}

/** A privacy budget (epsilon, delta) for all reports of one customer, which is never exceeded. */
export declare class Ledger {
  constructor(options: {
    epsilon: number;
    delta?: number;
    /** Default: localStorage in browsers (it needs locks, which https pages have), memory elsewhere. */
    storage?: KeyValueStorage;
    /** Name of the customer, if several customers share a storage. */
    name?: string;
  });
  /** Charge one report. Throws BudgetSpent and charges nothing if the report exceeds the budget. */
  spend(mechanism: Mechanism): Promise<void>;
  /** Whether the budget allows one more report. */
  allows(mechanism: Mechanism): Promise<boolean>;
  /** The cap, the number of reports so far, and the epsilon of all of them together at the cap's delta. */
  state(): Promise<{ cap: { epsilon: number; delta: number }; reports: number; spent: number }>;
}

// -- the device -------------------------------------------------------------------------------------------------------

/** A price for a customer. It contains no data of the customer. */
export declare class Offer {
  private constructor();
  readonly price: number;
  readonly version: number;
  /** Whether the price was drawn at random in order to learn. */
  readonly experiment: boolean;
}

/** What leaves the device about one sale. */
export interface Item {
  readonly id: string;
  readonly version: number;
  /** null if no report is asked for or the budget is spent; during experiments a null reveals the latter. */
  readonly report: Report | null;
}

export interface DeviceOptions {
  /** Address of the service, as in "https://prices.example". */
  url: string;
  /** An API key of role device. */
  key: string;
  product: string;
  promise: PrivacyPromise;
  /** The budget of all reports together; null leaves them uncounted. */
  ledger: Ledger | null;
  /** Where reports wait to be sent. Default: localStorage in browsers (it needs locks), memory elsewhere. */
  storage?: KeyValueStorage;
  fetch?: typeof globalThis.fetch;
  /** Source of randomness. Default: the operating system. */
  words?: SystemWords | UnsafeWords;
  /** Clock in seconds, for the age of parameters. */
  now?: () => number;
  /** Called before every request, with the bytes of its body (none for GET). */
  onSend?: (bytes: Uint8Array, about: { method: string; url: string; headers: Record<string, string> }) => void;
  /** Called for every report that the service will never accept. */
  onRefused?: (item: Item, status: number) => void;
}

/** A device: it prices for its customer, and reports. */
export declare class Device {
  constructor(options: DeviceOptions);
  readonly ledger: Ledger | null;
  /** Number of damaged reports in the storage since this object was made. They are set aside there, and not sent. */
  readonly damaged: number;
  /**
   * The current parameters, checked against the promise. Parameters of an earlier version, or other parameters of the
   * same version, are accepted if the service repeats them, as after a restore from a backup. Throws if a field that a
   * product never changes has changed.
   */
  params(): Promise<Params>;
  /** A price for a context, which never leaves the device. */
  offer(z: Context, terms?: Terms): Promise<Offer>;
  /** Report the outcome of an offer, once: another call with the same outcome resolves to the same result. */
  sold(offer: Offer, y: number | boolean): Promise<Item & { readonly sent: boolean }>;
  /** Send the waiting reports now. */
  flush(): Promise<{ sent: number; waiting: number }>;
  /** Stop sending in the background. Waiting reports stay in the storage. */
  close(): void;
}
