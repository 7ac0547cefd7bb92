/** The dashboard: looks at one product every two seconds and shows what the service says of it. */

import { begin, middle, show, showCurve, showPace } from "./board.js";
import { Api, Refused, el, fill, latest, say } from "./common.js";
import { Control } from "./control.js";

const EVERY = 2_000; // milliseconds between two looks
const KEY = "hushprice-key";
const $ = (id) => document.getElementById(id);

let api = null;
let products = [];
let product = null; // the name of the one that is shown
let seen = null; // its summary
let timer = null;
let looks = 0;
const customers = new Map(); // product -> the chosen customer's features

const control = new Control({
  now: () => ({ api, product, seen }),
  look: () => {
    looks = 0;
    return look();
  },
});

// -- the key ------------------------------------------------------------------------------------------------------------

/** The key of the address (#key=...), which is then taken out of it, or the one of this tab. */
function findKey() {
  const given = new URLSearchParams(location.hash.slice(1)).get("key");
  if (given) {
    sessionStorage.setItem(KEY, given);
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

// -- looking ------------------------------------------------------------------------------------------------------------

function status(kind, text) {
  $("status").className = `pulse ${kind}`;
  say($("status"), text);
}

function stop() {
  clearTimeout(timer);
  timer = null;
}

/** One look, and the next in two seconds: less often while the service cannot be reached, not at all in a hidden tab. */
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
  const first = seen?.product !== name;
  const changed = first || value.version !== seen.version || value.seq !== seen.seq;
  const byHand =
    first || value.mode !== seen.mode || JSON.stringify(value.guardrails) !== JSON.stringify(seen.guardrails);
  seen = value;
  if (first) {
    if (!customers.has(name)) customers.set(name, middle(value));
    begin(value, customers.get(name), () => curve().catch(() => {})); // the next look will say what is wrong
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
  const told = await api.get(`/v1/products/${name}/curve?context=${context.join(",")}`);
  if (name === product && seen?.product === name) showCurve(told);
});

function choose(name) {
  product = name;
  seen = null;
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
  .catch(() => {}); // then without a link
product = new URLSearchParams(location.search).get("product");
const key = findKey();
if (key) open(key);
else askForKey();
