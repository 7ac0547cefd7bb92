/** The dashboard's view of a product: texts, totals, curves and charts. */

import { Chart } from "./charts.js";
import { difference, duration, el, fill, money, percent, say, short, whole } from "./common.js";
import { binary } from "./device/kernels.js";
import { bestPrice, perCustomer } from "./numbers.js";
import { Ranges } from "./ranges.js";

const $ = (id) => document.getElementById(id);

let summary = null; // of the product
let curve = null; // of the chosen customer
let context = null; // the chosen customer's features

const charts = {
  demand: new Chart($("demand"), { title: "Demand at each price", tall: 250 }),
  revenue: new Chart($("revenue"), { title: "Earnings at each price", tall: 250 }),
  prices: new Chart($("prices"), { title: "Prices over time", tall: 260 }),
  share: new Chart($("share"), { title: "Learning over time" }),
  pace: new Chart($("pace"), { title: "Customers per minute" }),
  ranges: new Ranges($("earned"), { title: "Earnings per customer, with the range that holds in 95 of 100 cases" }),
  earned: new Chart($("earned"), { title: "Earnings per customer over time", tall: 170 }),
};

const cash = (x, digits) => money(x, summary.currency, digits);

/** The features of a customer, with generated names if the product has none. */
const featuresOf = ({ features, dim }) =>
  features.length ? features : Array.from({ length: dim }, (_, k) => ({ name: `feature ${k + 1}`, low: -1, high: 1 }));

/** The customer whose features are the midpoints of all ranges. */
export const middle = (product) => featuresOf(product).map((f) => f.value ?? (f.low + f.high) / 2);

/** Show a product for the first time, with sliders that change the features of a customer in place. */
export function begin(latest, customer, changed) {
  [summary, curve, context] = [latest, null, customer];
  const named = featuresOf(summary);
  const free = named.map((feature, k) => ({ ...feature, k })).filter((f) => f.value === undefined && f.k < 40);
  fill(
    $("sliders"),
    ...free.map(({ name, low, high, k }) => {
      const output = el("output", {}, short(context[k]));
      const input = el("input", {
        type: "range",
        min: low,
        max: high,
        step: (high - low) / 200,
        value: context[k],
        "aria-label": name,
      });
      input.addEventListener("input", () => {
        context[k] = Number(input.value);
        output.textContent = short(context[k]);
        changed();
        showPrices();
      });
      return el("div", { class: "slider" }, el("span", {}, name), output, input);
    }),
  );
  if (!free.length) {
    fill(
      $("sliders"),
      el("p", { class: "soft" }, "All customers are alike here: this product has no features that vary."),
    );
  }
}

/** Show the service's summary of the product. */
export function show(latest) {
  summary = latest;
  const hidden = summary.kind === "private";
  document.title = `${summary.product} · hushprice`;
  say($("name"), summary.product);
  say($("kind"), hidden ? "private" : "plain");
  $("kind").className = `badge ${summary.kind}`;
  $("kind").title = hidden
    ? "Prices are worked out on customers' devices"
    : "The server sees customers' features and outcomes";
  say($("mode"), summary.mode);
  $("mode").className = `badge ${summary.mode}`;
  say($("mode-words"), summary.mode_words);
  say($("phase"), summary.phase.title);
  say($("phase-words"), summary.phase.words);
  showProgress(summary.phase.progress);
  say($("promise-title"), summary.guarantee.title);
  say($("promise-words"), summary.guarantee.words);
  $("promise-note").hidden = !hidden;
  showFindings();
  showTotals(hidden);
  showPrices();
  showShare();
  showEarned();
}

/** Changes of demand, and where it does not follow the model. */
function showFindings() {
  const lines = [...(summary.change ? [summary.change] : []), ...summary.misfits];
  $("findings").hidden = lines.length === 0;
  fill($("findings-list"), ...lines.map((line) => el("li", {}, line.words)));
  const rare = "While demand follows the model, such an alarm is expected less than once in a million outcomes.";
  say($("findings-note"), rare);
  $("findings-note").hidden = summary.misfits.length === 0;
}

function showProgress(progress) {
  $("progress").hidden = !progress;
  if (!progress) return;
  $("bar").hidden = progress.of === null;
  if (progress.of !== null) {
    $("bar").max = progress.of;
    $("bar").value = Math.min(progress.done, progress.of);
  }
  const of = progress.of === null ? "" : ` of ${whole(progress.of)}`;
  say($("progress-words"), `${whole(progress.done)}${of} ${progress.words}`);
}

function showTotals(hidden) {
  const { counts, sums } = summary;
  const back = counts.learned - summary.learned_now;
  const undone = back > 0 ? `, and ${whole(back)} more that were rolled back` : "";
  const tiles = hidden
    ? [
        ["Customers", whole(counts.customers), "each sent one message"],
        ["Reports", whole(counts.reports), "the others said only that they were served"],
        ["Learned from", whole(summary.learned_now), `of ${whole(counts.reports)} reports${undone}`],
        ["Too old", whole(counts.stale), "reports made against older prices"],
        ["Not asked for", whole(counts.unasked), "reports sent while nothing is learned"],
      ]
    : [
        ["Customers", whole(counts.customers), "each was quoted a price"],
        [
          "Sold",
          whole(sums.quantity),
          counts.outcomes ? `${short(sums.quantity / counts.outcomes)} per outcome` : "no outcome yet",
        ],
        [
          summary.cost > 0 ? "Earned after cost" : "Earned",
          cash(sums.profit, 0),
          counts.outcomes ? `${cash(sums.profit / counts.outcomes)} per outcome` : "",
        ],
        [
          "Learned from",
          whole(summary.learned_now),
          `of ${whole(counts.outcomes)} outcomes${summary.only_experiments ? ": only from experiments" : ""}${undone}`,
        ],
        ["Open offers", whole(summary.open_offers), "no outcome yet"],
        [
          "Given up",
          whole(counts.expired),
          `after ${duration(summary.outcomes.wait)}: ${summary.outcomes.then === "no-sale" ? "taken as no sale" : "left out"}`,
        ],
        ["Too late", whole(counts.late), "outcomes after that, not learned from"],
      ];
  fill(
    $("totals"),
    ...tiles.map(([name, value, note]) =>
      el("div", {}, el("dt", {}, name), el("dd", {}, value, el("small", {}, note))),
    ),
  );
}

/** Show the model's predictions for the chosen customer. */
export function showCurve(latest) {
  curve = latest;
  showEarned();
  const { prices, best, baseline } = curve;
  const known = curve.learned;
  const x = {
    label: summary.currency ? `Price (${summary.currency})` : "Price",
    read: (p) => `At ${cash(p)}`,
    domain: summary.prices,
  };
  const marks = known
    ? [
        { x: best.price, label: "best", tone: "best" },
        { x: baseline.price, label: "baseline", tone: "base" },
      ]
    : [];
  const pairs = (values) => (known ? prices.map((p, k) => [p, values[k]]) : []);
  const band = (low, high) =>
    known && low ? [{ tone: "main", points: prices.map((p, k) => [p, low[k], high[k]]) }] : [];
  const chance = binary(summary.family);
  const empty = "Nothing has been learned yet. The curve appears with the first reports.";
  say($("demand-unit"), chance ? "chance that this customer buys" : "units this customer buys on average");
  charts.demand.show({
    desc: known
      ? `Expected demand of the chosen customer at prices from ${cash(prices[0])} to ${cash(prices.at(-1))}.`
      : empty,
    x,
    marks,
    empty,
    y: {
      label: chance ? "Chance" : "Units",
      zero: true,
      domain: chance ? [0, 1] : undefined,
      format: chance ? (v) => percent(v) : undefined,
      read: chance ? percent : short,
    },
    series: [{ points: pairs(curve.demand), tone: "main" }],
    bands: band(curve.demand_low, curve.demand_high),
  });
  charts.revenue.show({
    desc: known ? `Expected earnings from the chosen customer; best at ${cash(best.price)}.` : empty,
    x,
    marks,
    empty,
    y: { label: "Earnings", zero: true, read: cash, cap: capOf(curve) },
    series: [{ points: pairs(curve.revenue), tone: "main" }],
    bands: band(curve.revenue_low, curve.revenue_high),
  });
  say($("bands"), known ? curve.bands.words : "");
  showFacts(known);
}

/** The upper limit of the axis: it cuts a band that is far above everything else, so that the curve stays readable. */
function capOf({ revenue, revenue_high: high }) {
  return high ? Math.min(1.06 * Math.max(...high), 4 * Math.max(...revenue.map(Math.abs), 1e-9)) : undefined;
}

function showFacts(known) {
  const { best, baseline } = curve;
  const sold = (at) => (binary(summary.family) ? `${percent(at.demand)} buy` : `${short(at.demand)} units`);
  const within = best.price_low === undefined ? "" : `${cash(best.price_low)} to ${cash(best.price_high)}`;
  const moved =
    Math.abs(summary.baseline_stated - baseline.price) > 1e-9
      ? `; ${cash(summary.baseline_stated)} is not allowed now`
      : "";
  const facts = known
    ? [
        ["Best price", "tone-best", cash(best.price), within || sold(best)],
        ["Earnings there", "", cash(best.revenue), within ? sold(best) : ""],
        ["Baseline price", "tone-base", cash(baseline.price), `${sold(baseline)}${moved}`],
        ["Earnings there", "", cash(baseline.revenue), ""],
      ]
    : [["Baseline price", "tone-base", cash(baseline.price), moved.slice(2)]];
  fill(
    $("customer-facts"),
    ...facts.flatMap(([name, tone, value, note]) => [
      el("dt", {}, name),
      el("dd", { class: tone }, value, note ? el("small", {}, note) : null),
    ]),
  );
}

function showPrices() {
  const past = summary.history;
  const chosen = past.theta.map((theta, k) => [
    past.at[past.theta_at[k]],
    bestPrice(summary, theta, context),
    past.learned[past.theta_at[k]],
  ]);
  const best = chosen.filter(([, , n]) => n > 0).map(([t, p]) => [t, p]);
  if (best.length && summary.at > best.at(-1)[0]) best.push([summary.at, best.at(-1)[1]]); // as it still is
  const series = [{ name: "Best for the chosen customer", tone: "main", step: true, points: best }];
  const today =
    summary.ladder.length || summary.allowed.some((p, k) => p !== summary.prices[k])
      ? " within today's guardrails"
      : "";
  if (summary.kind === "plain") {
    series.unshift({
      name: "Average price quoted",
      tone: "other",
      points: perCustomer(past, "price_sum", "customers"),
    });
    say(
      $("prices-words"),
      `What customers were quoted, and the price that looked best${today} for the customer chosen above.`,
    );
  } else {
    say(
      $("prices-words"),
      `The price that looked best${today} at each moment for the customer chosen above. What customers were quoted, the server does not know.`,
    );
  }
  charts.prices.show({
    desc: "Prices over time, and the baseline.",
    x: { kind: "time", label: "Time" },
    y: { label: "Price", domain: summary.prices, read: cash },
    series,
    levels: [{ name: "Baseline", y: summary.baseline, tone: "base" }],
    empty: "The line begins when something has been learned.",
  });
}

/** For a private product the share of experiments; for a plain one the distance of prices from the best known ones. */
function showShare() {
  const { history: past, counts, sums, kind } = summary;
  const of = (name) => perCustomer(past, name, "customers");
  if (kind === "plain") {
    say($("share-title"), "Distance from the best known price");
    const all = counts.customers
      ? ` On average over all customers ${percent(sums.deviation / counts.customers)}; ${percent(counts.far / counts.customers)} of prices were more than a tenth of the range away.`
      : "";
    say($("share-words"), `How far prices are moved to learn from them, in percent of the price range.${all}`);
    return charts.share.show({
      desc: "Mean distance of prices from the best known ones, and share of prices far from them, over time.",
      x: { kind: "time", label: "Time" },
      y: { label: "Percent", zero: true, format: (v) => percent(v), read: percent },
      series: [
        { name: "Mean distance", tone: "main", points: of("deviation") },
        { name: "More than 10% of the range away", tone: "other", points: of("far") },
      ],
      empty: "No customers yet.",
    });
  }
  say($("share-title"), "Share of experiments");
  say(
    $("share-words"),
    "How many customers get a price that is drawn to learn from, rather than simply the best known one.",
  );
  charts.share.show({
    desc: "Share of customers with a price that is bent to learn from, over time.",
    x: { kind: "time", label: "Time" },
    y: { label: "Experiments", domain: [0, 1], format: (v) => percent(v), read: percent },
    series: [{ tone: "main", points: of("experiments") }],
    empty: "No customers yet.",
  });
}

/** Show the customers of the last half hour. The time axis moves on even if there are none. */
export function showPace() {
  const hidden = summary.kind === "private";
  say($("pace-title"), hidden ? "Messages per minute" : "Offers per minute");
  const now = Math.floor(Date.now() / 60_000) * 60;
  const counts = new Map(summary.minutes);
  const points = Array.from({ length: 30 }, (_, k) => [now - 60 * (29 - k), counts.get(now - 60 * (29 - k)) ?? 0]);
  charts.pace.show({
    desc: hidden
      ? "Messages from devices in each of the last thirty minutes."
      : "Offers in each of the last thirty minutes.",
    x: { kind: "time", label: "Time", domain: [points[0][0], now + 60] },
    y: {
      label: hidden ? "Messages" : "Offers",
      zero: true,
      read: whole,
      domain: points.some(([, n]) => n > 0) ? undefined : [0, 1],
    },
    series: [{ points, bars: true, thickness: 60, tone: "main" }],
  });
}

function showEarned() {
  return summary.kind === "private" ? showExpected() : showActual();
}

/** For a private product, only the model's predictions are available. */
function showExpected() {
  charts.earned.hide();
  say($("earned-words"), summary.guarantee.unseen);
  if (!curve?.learned) {
    charts.ranges.show([], cash);
    say($("earned-verdict"), curve ? "Nothing has been learned yet." : "");
    return;
  }
  const { best, baseline } = curve;
  const around = (price, values) => {
    const k = curve.prices.reduce(
      (near, p, i) => (Math.abs(p - price) < Math.abs(curve.prices[near] - price) ? i : near),
      0,
    );
    return values?.[k];
  };
  const row = (name, at, tone) => ({
    name,
    value: at.revenue,
    tone,
    low: around(at.price, curve.revenue_low),
    high: around(at.price, curve.revenue_high),
  });
  charts.ranges.show(
    [
      row(`Chosen customer at the best price, ${cash(best.price)}`, best, "best"),
      row(`Same customer at the baseline, ${cash(baseline.price)}`, baseline, "base"),
    ],
    cash,
  );
  const gain = { mean: best.revenue - baseline.revenue, low: best.more_low, high: best.more_high };
  say($("earned-verdict"), verdict(gain, "The model expects", "from this customer"));
}

function showActual() {
  const earned = summary.earned;
  const points = perCustomer(summary.history, "profit", "outcomes");
  charts.earned.show({
    desc: "Earnings per outcome over time.",
    x: { kind: "time", label: "Time" },
    y: { label: "Earned", zero: true, read: cash },
    series: [{ name: "Earned per outcome", tone: "best", points }],
    levels: earned?.baseline ? [{ name: "Expected at the baseline", y: earned.baseline.mean, tone: "base" }] : [],
    empty: "No outcomes yet.",
  });
  if (!earned) {
    charts.ranges.show([], cash);
    say($("earned-words"), "What customers bring, next to what they would at one price for all.");
    return say($("earned-verdict"), "");
  }
  say(
    $("earned-words"),
    `The last ${whole(earned.n)} customers with an outcome, experiments included, and what the model expects of the same ones at the baseline, ${cash(summary.baseline)}. Bars hold in roughly 95 of 100 cases.`,
  );
  const rows = [{ name: "Earned per customer", value: earned.mean, low: earned.low, high: earned.high, tone: "best" }];
  if (earned.baseline) {
    rows.push({
      name: "At the baseline",
      value: earned.baseline.mean,
      low: earned.baseline.low,
      high: earned.baseline.high,
      tone: "base",
    });
  }
  charts.ranges.show(rows, cash);
  say($("earned-verdict"), earned.more ? verdict(earned.more, "Customers brought", "each", "roughly ") : earned.words);
}

/** A sentence that interprets a difference and its interval. */
function verdict({ mean, low, high }, who, whom, about = "") {
  const same = cash(Math.abs(mean)) === cash(0);
  const amount = same
    ? `${who} about the same as at the baseline ${whom}`
    : `${who} ${cash(Math.abs(mean))} ${mean >= 0 ? "more" : "less"} than at the baseline ${whom}`;
  if (low === undefined) return `${amount}; how sure that is, is not known yet.`;
  const range = `(${about}${difference(low, summary.currency)} to ${difference(high, summary.currency)})`;
  return low > 0 || high < 0 ? `${amount} ${range}.` : `${amount} ${range}: too close to call yet.`;
}
