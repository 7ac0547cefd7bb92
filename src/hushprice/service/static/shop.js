/** The demo shop: this page is the visitor's device, and shows everything that it sends next to what stays here. */

import { Device, Ledger, PrivacyPromise, SystemWords, readParams } from "./device/index.js";
import { Refused, el, fill, latest, money, say, short, whole } from "./common.js";

const $ = (id) => document.getElementById(id);
const REPORTS = 60; // number of reports that the budget allows
const EVERY = 5_000; // milliseconds between two updates of the public parameters while the page is open
const LONGEST_LIST = 40; // of requests and of deals

/** The operating system's randomness, with one draw per visit for the price: dragging a slider does not draw again. */
class VisitWords extends SystemWords {
  #price = null;

  draw(n, purpose) {
    if (purpose !== "price") return super.draw(n, purpose);
    this.#price ??= super.draw(n, purpose);
    return this.#price;
  }

  nextVisit() {
    this.#price = null;
  }
}

let config = null; // { products, key }
let product = null;
let device = null;
let promise = null;
let words = null;
let params = null;
let offer = null;
let features = []; // with their chosen values
let wire = [];
let done = [];
let timer = null;
let busy = false; // during a sale

// -- opening ------------------------------------------------------------------------------------------------------------

async function open() {
  const answer = await fetch("/shop/config", { cache: "no-store", credentials: "omit" });
  if (!answer.ok) throw new Refused(answer.status, "The shop is closed: start the service with --shop.");
  config = await answer.json();
  if (!config.products.length) throw new Refused(404, "There is no private product to sell here.");
  const requested = new URLSearchParams(location.search).get("product");
  await choose(config.products.includes(requested) ? requested : config.products[0]);
  await noteOthers();
}

async function choose(name) {
  product = name;
  fill(
    $("products"),
    ...config.products.map((one) =>
      el(
        "button",
        { type: "button", "aria-current": one === name ? "true" : null, click: () => choose(one).catch(lost) },
        one,
      ),
    ),
  );
  device?.close();
  words = new VisitWords();
  [wire, done, offer] = [[], [], null];
  promise = await promised();
  device = new Device({
    url: location.origin,
    key: config.key,
    product,
    promise,
    words,
    storage: sessionStorage,
    onSend: sent,
    ledger: new Ledger({
      epsilon: REPORTS * promise.epsilon,
      delta: Math.min(0.5, REPORTS * promise.delta),
      storage: sessionStorage,
      name: `shop:${product}`,
    }),
  });
  params = await device.params();
  features = params.document.features.map((f) => ({ ...f, chosen: f.value ?? (f.low + f.high) / 2 }));
  if (!features.length) {
    features = Array.from({ length: params.document.dim }, (_, k) => ({
      name: `feature ${k + 1}`,
      low: -1,
      high: 1,
      chosen: 0,
    }));
  }
  $("counter").hidden = $("panels").hidden = false;
  showSliders();
  showPromise();
  await price();
  await showBudget();
  keepFresh();
}

/** The promise of this device, which is fixed when the visit begins and stored until it ends. */
async function promised() {
  const name = `hushprice-shop-promise:${product}`;
  const stored = sessionStorage.getItem(name);
  if (stored) return new PrivacyPromise(JSON.parse(stored));
  const path = `/v1/products/${product}/params`;
  sent(new Uint8Array(), { method: "GET", url: location.origin + path, headers: { Accept: "application/json" } });
  const answer = await fetch(path, {
    headers: { Accept: "application/json", Authorization: `Bearer ${config.key}` },
    cache: "no-store",
    credentials: "omit",
  });
  if (!answer.ok) throw new Refused(answer.status, "The service gives this shop no parameters.");
  const made = PrivacyPromise.of(await answer.json());
  sessionStorage.setItem(name, JSON.stringify(made));
  return made;
}

/** Mention the plain products, which this page does not sell: their prices require sending the features. */
async function noteOthers() {
  const answer = await fetch("/v1/products", {
    headers: { Authorization: `Bearer ${config.key}` },
    cache: "no-store",
    credentials: "omit",
  });
  if (!answer.ok) return;
  const plain = (await answer.json()).products.filter((one) => one.kind === "plain").map((one) => one.name);
  $("plain-note").hidden = !plain.length;
  say(
    $("plain-note"),
    `This service also sells ${plain.join(" and ")}, as a plain product: there the server is told the features to quote a price, and sees what was bought. This page sells private products only.`,
  );
}

/** Update the public parameters, which change while others buy, at intervals and when the tab becomes visible. */
function keepFresh() {
  clearTimeout(timer);
  if (document.hidden) return;
  timer = setTimeout(() => price().catch(lost).finally(keepFresh), EVERY);
}

// -- the price ----------------------------------------------------------------------------------------------------------

const context = () => features.map((f) => f.chosen);

const price = latest(async () => {
  const made = await device.offer(context());
  if (busy) return; // during a sale at the last price; the next price follows it
  [offer, params] = [made, await device.params()];
  connected();
  const { currency, phase, mode, learn } = params.document;
  say($("ware"), product);
  $("picture").src = /coffee|espresso|latte/.test(product) ? "/pages/cup.svg" : "/pages/icon.svg";
  say($("price"), money(offer.price, currency));
  $("price").title = String(offer.price);
  const why = {
    explore: "An experiment: this price was drawn at random, whoever you are. Dragging does not change it.",
    exploit: "Worked out for you, on this device. Drag and see.",
    fixed: mode === "shadow" ? "The same for everyone while the shop only watches." : "The same for everyone.",
  };
  say($("price-words"), why[phase] + (learn ? "" : " Nothing is learned from it."));
  showStays();
  $("buy").disabled = $("pass").disabled = false;
});

async function decide(y) {
  if (!offer || busy) return;
  const mine = offer;
  busy = true;
  $("buy").disabled = $("pass").disabled = true;
  try {
    const receipt = await device.sold(mine, y);
    done.unshift({
      what: y ? "bought" : "passed",
      at: mine.price,
      features: features.filter((f) => f.value === undefined).map((f) => `${f.name} ${short(f.chosen)}`),
    });
    done.length = Math.min(done.length, LONGEST_LIST);
    const said =
      receipt.report === null
        ? params.document.learn
          ? "Your budget is spent, so the message was empty."
          : "Nothing is asked for now, so the message was empty."
        : "One scrambled report was sent.";
    say(
      $("thanks"),
      `${y ? "Enjoy!" : "Maybe next time."} ${receipt.sent ? said : "The message waits here until the service can be reached."}`,
    );
  } finally {
    busy = false;
  }
  words.nextVisit();
  await price();
  await showBudget();
}

// -- what is shown ------------------------------------------------------------------------------------------------------

function showSliders() {
  const free = features.filter((f) => f.value === undefined);
  fill(
    $("sliders"),
    ...free.map((feature) => {
      const output = el("output", {}, short(feature.chosen));
      const input = el("input", {
        type: "range",
        name: feature.name,
        min: feature.low,
        max: feature.high,
        step: "any",
        value: feature.chosen,
        "aria-label": feature.name,
      });
      input.addEventListener("input", () => {
        feature.chosen = Number(input.value);
        output.textContent = short(feature.chosen);
        price().catch(lost);
      });
      return el("div", { class: "slider" }, el("span", {}, feature.name), output, input);
    }),
  );
}

function showStays() {
  const facts = features.filter((f) => f.value === undefined).map((f) => [f.name, short(f.chosen)]);
  facts.push(["your price", money(offer.price, params.document.currency)]);
  fill($("stays"), ...facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
  const lines = done
    .slice(0, 8)
    .map((deal) =>
      el(
        "li",
        {},
        el("span", {}, `${deal.what} at ${money(deal.at, params.document.currency)}`),
        el("span", { class: "by" }, deal.features.join(" · ")),
      ),
    );
  fill($("done"), ...(lines.length ? lines : [el("li", { class: "soft" }, "Nothing yet.")]));
}

function showPromise() {
  const { epsilon, delta, clip, mechanisms } = promise;
  const facts = [
    [
      "Given away by one report, at most",
      `\u03b5 = ${short(epsilon)}`,
      `no report is more than ${short(Math.exp(epsilon))} times as likely from you as from anyone else`,
    ],
    ["Length of what is scrambled, at most", short(clip), "longer is cut before the dice are thrown"],
    ["How it is scrambled", mechanisms.join(", "), ""],
  ];
  if (delta > 0) facts.splice(1, 0, ["But for a chance of", String(delta), ""]);
  fill(
    $("promise"),
    ...facts.flatMap(([name, value, note]) => [
      el("dt", {}, name),
      el("dd", {}, value, note ? el("small", {}, note) : null),
    ]),
  );
}

async function showBudget() {
  const { cap, reports, spent } = await device.ledger.state();
  say(
    $("budget-words"),
    `Each report spends a little of what may ever be known of you. This device counts, and stops at ${short(cap.epsilon)}: enough to play with, ${REPORTS} reports. (A real device would stop far sooner.)`,
  );
  $("budget").max = cap.epsilon;
  $("budget").value = Math.min(spent, cap.epsilon);
  const over = spent + promise.epsilon > cap.epsilon * (1 + 1e-9);
  const after = over
    ? " It is spent: from now on the messages are empty. They are still sent, so that silence says nothing."
    : "";
  say($("budget-left"), `${short(spent)} spent by ${whole(reports)} ${reports === 1 ? "report" : "reports"}.${after}`);
}

// -- the wire -----------------------------------------------------------------------------------------------------------

const MASKED = "\u2022\u2022\u2022\u2022";

/** Record a request before it leaves, in order to show it. */
function sent(bytes, { method, url, headers }) {
  const text = new TextDecoder().decode(bytes);
  const masked = { ...headers, Authorization: `Bearer ${config.key.split("_").slice(0, 2).join("_")}_${MASKED}` };
  const request = { method, url, headers: masked, text, size: bytes.length, at: Date.now(), times: 1 };
  const before = wire[0];
  if (before && method === "GET" && before.method === "GET" && before.url === url) {
    wire[0] = { ...request, times: before.times + 1 };
  } else wire.unshift(request);
  wire.length = Math.min(wire.length, LONGEST_LIST);
  fill($("wire"), ...wire.map(line));
}

function line({ method, url, headers, text, size, at, times }) {
  const clock = new Date(at).toLocaleTimeString("en-GB");
  const what =
    method === "GET" ? `asks for the public parameters${times > 1 ? `, ${times} times` : ""}` : "sends a message";
  const path = url.startsWith(location.origin) ? url.slice(location.origin.length) : url;
  const head = Object.entries(headers)
    .map(([name, value]) => `${name}: ${value}`)
    .join("\n");
  const body = text ? el("pre", { class: "body" }, text) : el("pre", { class: "none" }, "no body");
  return el(
    "li",
    {},
    el("header", {}, el("b", {}, what), el("span", {}, `${clock} · ${size} bytes of body`)),
    el("pre", {}, `${method} ${path}\n${head}`),
    body,
  );
}

// -- trouble ------------------------------------------------------------------------------------------------------------

function connected() {
  $("lost").hidden = true;
  $("status").className = "pulse live";
  say($("status"), "Open");
}

function lost(problem) {
  $("status").className = "pulse lost";
  say($("status"), "Not connected");
  const broken = problem.name === "BrokenPromise";
  const text = broken
    ? `Your device refuses: ${problem.message}`
    : problem instanceof Refused
      ? problem.message
      : "Connection lost, trying again.";
  say($("lost"), text);
  $("lost").hidden = false;
  if (!broken && !(problem instanceof Refused) && problem.name !== "Unavailable") console.error(problem);
}

/** Show how the device refuses a server that asks for more: the same document with twice the epsilon. */
async function greedy() {
  const { document: published } = await device.params();
  const more = structuredClone(published);
  more.mechanism.epsilon *= 2;
  try {
    readParams(more, promise);
    say($("refused"), "It was taken. That must not be.");
  } catch (problem) {
    say($("refused"), `Tried with twice the \u03b5. ${problem.message}`);
  }
}

/** Start over as another customer, with a new budget and a new promise. */
async function another() {
  for (const name of Object.keys(sessionStorage)) {
    if (/^hushprice[:-]/.test(name) && name !== "hushprice-key") sessionStorage.removeItem(name);
  }
  say($("thanks"), "");
  say($("refused"), "");
  await choose(product);
}

$("buy").addEventListener("click", () => decide(1).catch(lost));
$("pass").addEventListener("click", () => decide(0).catch(lost));
$("greedy").addEventListener("click", () => greedy().catch(lost));
$("another").addEventListener("click", () => another().catch(lost));
document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(timer);
  else if (device) price().catch(lost).finally(keepFresh);
});
open().catch((problem) => {
  lost(problem);
  if (!(problem instanceof Refused)) setTimeout(() => location.reload(), 5_000);
});
