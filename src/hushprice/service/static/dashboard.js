/** The dashboard: it polls one product every two seconds and shows its summary. */

import { begin, middle, show, showCurve, showPace } from "./board.js";
import { Api, Refused, el, fill, latest, say } from "./common.js";
import { Control } from "./control.js";

const EVERY = 2_000; // milliseconds between two polls
const KEY = "hushprice-key";
const $ = (id) => document.getElementById(id);

let api = null;
let products = [];
let product = null; // name of the current product
let summary = null; // its summary
let timer = null;
let looks = 0;
const customers = new Map(); // product -> the chosen customer's features

const control = new Control({
  now: () => ({ api, product, summary }),
  look: () => {
    looks = 0;
    return look();
  },
});

// -- the key ------------------------------------------------------------------------------------------------------------

/** The key in the address (#key=...), which is then removed from it, or the stored key of this tab. */
function findKey() {
  const fromAddress = new URLSearchParams(location.hash.slice(1)).get("key");
  if (fromAddress) {
    sessionStorage.setItem(KEY, fromAddress);
    history.replaceState(null, "", location.pathname + location.search);
  }
  return sessionStorage.getItem(KEY);
}

function askForKey(problem = "") {
  stop();
  api = null;
  sessionStorage.removeItem(KEY);
  $("board").hidden = $("leave").hidden = $("none").hidden = true;
  $("products").replaceChildren();
  $("enter").hidden = false;
  $("enter-problem").textContent = problem;
  status("", "Not connected");
}

function open(key) {
  api = new Api(key);
  $("enter").hidden = true;
  $("leave").hidden = false;
  $("key").value = "";
  control.allow(!/^hp_(seller|device)_/.test(key));
  look();
}

// -- polling ------------------------------------------------------------------------------------------------------------

function status(kind, text) {
  $("status").className = `pulse ${kind}`;
  say($("status"), text);
}

function stop() {
  clearTimeout(timer);
  timer = null;
}

/** Poll now and again in two seconds; less often while the service cannot be reached, not at all in a hidden tab. */
async function look() {
  stop();
  if (!api || document.hidden) return;
  let wait = EVERY;
  try {
    await once();
    status("live", "Connected");
    $("lost").hidden = true;
  } catch (problem) {
    if (problem instanceof Refused && (problem.status === 401 || problem.status === 403)) {
      const text =
        problem.status === 401
          ? "The service does not know this key."
          : "This key may not look: take a seller or admin key.";
      return askForKey(text);
    }
    wait = 2 * EVERY;
    const busy = problem instanceof Refused;
    status("lost", busy ? "Busy" : "Not connected");
    say($("lost"), busy ? `${problem.message} Trying again.` : "Connection lost, trying again.");
    $("lost").hidden = false;
  }
  stop();
  timer = setTimeout(look, wait);
}

async function once() {
  if (looks++ % 5 === 0 || !products.length) {
    products = (await api.get("/v1/products")).products;
    showTabs();
  }
  $("none").hidden = products.length > 0;
  $("board").hidden = products.length === 0;
  if (!products.length) return;
  if (!products.some((one) => one.name === product)) choose(products[0].name);
  const name = product;
  const { value, fresh } = await api.watch(`/v1/products/${name}/summary`);
  if (name !== product) return;
  const first = summary?.product !== name;
  const changed = first || value.version !== summary.version || value.seq !== summary.seq;
  const byHand =
    first || value.mode !== summary.mode || JSON.stringify(value.guardrails) !== JSON.stringify(summary.guardrails);
  summary = value;
  if (first) {
    if (!customers.has(name)) customers.set(name, middle(value));
    begin(value, customers.get(name), () => curve().catch(() => {})); // the next poll shows the problem
    control.begin();
  }
  if (fresh || first) {
    show(value);
    control.show();
  }
  showPace();
  if (changed) await curve();
  if (byHand || looks % 10 === 0) await control.showHistory();
}

const curve = latest(async () => {
  const [name, context] = [product, customers.get(product)];
  const values = await api.get(`/v1/products/${name}/curve?context=${context.join(",")}`);
  if (name === product && summary?.product === name) showCurve(values);
});

function choose(name) {
  product = name;
  summary = null;
  const address = new URL(location.href);
  address.searchParams.set("product", name);
  history.replaceState(null, "", address.pathname + address.search);
  showTabs();
}

function showTabs() {
  fill(
    $("products"),
    ...products.map((one) =>
      el(
        "button",
        {
          type: "button",
          "aria-current": one.name === product ? "true" : null,
          click: () => {
            choose(one.name);
            look();
          },
        },
        one.name,
      ),
    ),
  );
}

// -- start --------------------------------------------------------------------------------------------------------------

$("enter").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = $("key").value.trim();
  if (!key) return;
  sessionStorage.setItem(KEY, key);
  open(key);
});
$("leave").addEventListener("click", () => askForKey());
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    stop();
    status("", "Paused");
  } else look();
});
window.addEventListener("hashchange", () => {
  const key = findKey();
  if (key && key !== api?.key) open(key);
});
fetch("/shop/config", { method: "HEAD", cache: "no-store", credentials: "omit" })
  .then((answer) => ($("shop").hidden = !answer.ok))
  .catch(() => {}); // without a link to the shop
product = new URLSearchParams(location.search).get("product");
const key = findKey();
if (key) open(key);
else askForKey();
