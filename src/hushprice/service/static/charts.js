/**
 * Line charts in SVG: axes with round ticks, bands, marks, a read-out that follows the pointer or the arrow keys, and the
 * numbers as a table. Colours and type are in style.css. A chart is created once; each call of show() redraws it.
 *
 *     const chart = new Chart(parent, { title: "Demand" });
 *     chart.show({ desc, x: { label, kind: "number" | "time", format }, y: { label, format, zero: true },
 *                  series: [{ name, points: [[x, y], ...], tone: "main", step: true, bars: true }],
 *                  bands: [{ name, points: [[x, low, high], ...], tone: "main" }],
 *                  marks: [{ x, label, tone: "best" }], empty: "Nothing yet." });
 */

import { el, fill, short, time } from "./common.js";

const SVG = "http://www.w3.org/2000/svg";
const TIMES = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800,
];
let numbered = 0;

function draw(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined) made.setAttribute(name, String(value));
  }
  made.append(...children);
  return made;
}

/** About n round numbers in [low, high], in steps of 1, 2 or 5 times a power of ten. */
export function ticks(low, high, n) {
  const rough = (high - low) / Math.max(1, n);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((k) => k * power >= 0.999 * rough) ?? 10);
  const values = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) values.push(k * step + 0); // + 0: no -0
  return { step, values };
}

/** About n round times in seconds: whole seconds, minutes, hours or days of local time. */
export function timeTicks(low, high, n) {
  const rough = (high - low) / Math.max(1, n);
  const step = TIMES.find((t) => t >= rough) ?? Math.ceil(rough / 604800) * 604800;
  const ahead = -60 * new Date(low * 1000).getTimezoneOffset();
  const values = [];
  for (let t = Math.ceil((low + ahead) / step) * step - ahead; t <= high; t += step) values.push(t);
  return { step, values };
}

/** Tick labels with as many digits as distinguish the ticks. */
function tickText(step, format) {
  if (format) return (v) => format(v, step);
  const digits = Math.max(0, Math.min(6, -Math.floor(Math.log10(step) + 1e-9)));
  return (v) => (Math.abs(v) < 1e-12 ? 0 : v).toFixed(digits).replace("-", "\u2212");
}

function timeText(step) {
  if (step >= 86400) {
    const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
    return (v) => day.format(v * 1000);
  }
  const seconds = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return step < 60 ? (v) => seconds.format(v * 1000) : time;
}

export class Chart {
  #at = null; // the x that is read out, null if none
  #keys = false; // whether the arrow keys chose it
  #spec = null;

  constructor(parent, { title, tall = 220 }) {
    this.title = title;
    this.tall = tall;
    this.id = `chart-${++numbered}`;
    this.picture = el("div", { class: "chart-picture" });
    this.bubble = el("div", { class: "chart-bubble", hidden: true });
    this.legend = el("div", { class: "chart-legend" });
    this.spoken = el("p", { class: "unseen", "aria-live": "polite" });
    this.table = el("details", { class: "chart-table" }, el("summary", {}, "As a table"));
    this.table.addEventListener("toggle", () => this.#tabulate());
    this.picture.append(this.bubble);
    this.figure = el("figure", { class: "chart" }, this.legend, this.picture, this.spoken, this.table);
    parent.append(this.figure);
    this.picture.addEventListener("pointermove", (event) => this.#point(event));
    this.picture.addEventListener("pointerdown", (event) => this.#point(event));
    this.picture.addEventListener("pointerleave", () => this.#leave());
    this.picture.addEventListener("keydown", (event) => this.#key(event));
    this.picture.addEventListener("focusout", () => this.#leave());
    new ResizeObserver(() => this.#paint()).observe(this.picture);
  }

  /** Hide the chart until the next show(). */
  hide() {
    this.figure.hidden = true;
  }

  show(spec) {
    this.#spec = spec;
    this.figure.hidden = false;
    this.#legend();
    this.#paint();
    this.#tabulate();
  }

  #legend() {
    const { series = [], levels = [] } = this.#spec;
    const lines = series.filter((one) => one.name).map((one) => ["", one]);
    const named = [...lines, ...levels.filter((one) => one.name).map((one) => [" dashed", one])];
    fill(
      this.legend,
      ...named.map(([kind, one]) => el("span", { class: `key${kind} tone-${one.tone ?? "main"}` }, one.name)),
    );
    this.legend.hidden = lines.length === 0;
  }

  #points() {
    return (this.#spec.series ?? []).flatMap((one) => one.points);
  }

  /** The ranges of the axes, with room for marks and some space above. */
  #domain() {
    const { x, y, bands = [], marks = [] } = this.#spec;
    const points = this.#points();
    const across = x.domain ?? [
      Math.min(...points.map((p) => p[0]), ...marks.map((m) => m.x)),
      Math.max(...points.map((p) => p[0]), ...marks.map((m) => m.x)),
    ];
    let up = y.domain;
    if (!up) {
      const values = [...points.map((p) => p[1]), ...bands.flatMap((b) => b.points.flatMap((p) => [p[1], p[2]]))];
      const lines = (this.#spec.levels ?? []).map((level) => level.y);
      let low = Math.min(...values, ...lines);
      const high = Math.max(...values, ...lines);
      if (y.zero && low > 0) low = 0;
      const air = 0.06 * (high - low || Math.abs(high) || 1);
      up = [y.zero && low === 0 ? 0 : low - air, high + air];
    }
    if (y.cap !== undefined) up = [up[0], Math.min(up[1], y.cap)];
    const wide = across[1] > across[0] ? across : [across[0] - 1, across[1] + 1];
    return { across: wide, up: up[1] > up[0] ? up : [up[0] - 1, up[1] + 1] };
  }

  #paint() {
    const spec = this.#spec;
    const width = Math.floor(this.picture.clientWidth);
    if (!spec || width < 40) return;
    this.picture.querySelector("svg")?.remove();
    this.picture.querySelector(".chart-empty")?.remove();
    if (this.#points().length < (spec.fewest ?? 2)) {
      this.bubble.hidden = true;
      this.scale = null;
      this.picture.prepend(el("p", { class: "chart-empty" }, spec.empty ?? "Nothing to show yet."));
      return;
    }
    const { across, up } = this.#domain();
    const tall = this.tall;
    const rows = ticks(up[0], up[1], Math.max(2, Math.round(tall / 55)));
    const rowText = tickText(rows.step, spec.y.format);
    const left = 14 + 7 * Math.max(2, ...rows.values.map((v) => rowText(v).length));
    const [right, top, bottom] = [14, spec.marks?.length ? 26 : 12, 42];
    const sx = (x) => left + ((x - across[0]) / (across[1] - across[0])) * (width - left - right);
    const sy = (y) => top + (1 - (y - up[0]) / (up[1] - up[0])) * (tall - top - bottom);
    this.scale = { sx, sy, across, up, left, right, top, bottom, width, tall };
    const svg = draw("svg", {
      viewBox: `0 0 ${width} ${tall}`,
      width,
      height: tall,
      role: "img",
      tabindex: 0,
      "aria-labelledby": `${this.id}-title ${this.id}-desc`,
    });
    svg.append(
      draw("title", { id: `${this.id}-title` }, this.title),
      draw("desc", { id: `${this.id}-desc` }, spec.desc ?? ""),
      this.#axes(rows, rowText),
      this.#inside(),
    );
    this.cross = draw("g", { class: "chart-cross", visibility: "hidden" });
    svg.append(this.cross);
    this.picture.prepend(svg);
    this.#readOut();
  }

  #axes(rows, rowText) {
    const { sx, sy, across, left, right, bottom, width, tall } = this.scale;
    const { x, y } = this.#spec;
    const axes = draw("g", { class: "chart-axes", "aria-hidden": "true" });
    for (const value of rows.values) {
      const at = sy(value);
      axes.append(draw("line", { class: "grid", x1: left, x2: width - right, y1: at, y2: at }));
      axes.append(
        draw("text", { class: "tick", x: left - 8, y: at, "text-anchor": "end", dy: "0.33em" }, rowText(value)),
      );
    }
    const many = Math.max(2, Math.floor((width - left - right) / 84));
    const columns = x.kind === "time" ? timeTicks(...across, many) : ticks(...across, many);
    const text = x.kind === "time" ? timeText(columns.step) : tickText(columns.step, x.format);
    const floor = tall - bottom;
    for (const value of columns.values) {
      const at = sx(value);
      axes.append(draw("line", { class: "stub", x1: at, x2: at, y1: floor, y2: floor + 5 }));
      const anchor = at > width - 26 ? "end" : at < left + 10 ? "start" : "middle";
      axes.append(draw("text", { class: "tick", x: at, y: floor + 18, "text-anchor": anchor }, text(value)));
    }
    axes.append(draw("line", { class: "axis", x1: left, x2: width - right, y1: floor, y2: floor }));
    const middle = (left + width - right) / 2;
    axes.append(draw("text", { class: "label", x: middle, y: tall - 6, "text-anchor": "middle" }, x.label ?? ""));
    if (y.label) axes.append(draw("title", {}, y.label));
    return axes;
  }

  #inside() {
    const { sx, sy, across, up, left, right, top, bottom, width, tall } = this.scale;
    const { series = [], bands = [], marks = [], levels = [] } = this.#spec;
    const clip = `${this.id}-clip`;
    const frame = draw("rect", {
      x: left,
      y: top - 2,
      width: Math.max(1, width - left - right),
      height: tall - top - bottom + 3,
    });
    const inside = draw("g", { "clip-path": `url(#${clip})` });
    for (const { points, tone = "main" } of bands) {
      const there = points.map(([x, , high]) => `${sx(x).toFixed(1)},${sy(high).toFixed(1)}`);
      const back = points.map(([x, low]) => `${sx(x).toFixed(1)},${sy(low).toFixed(1)}`).reverse();
      inside.append(draw("path", { class: `band tone-${tone}`, d: `M${[...there, ...back].join("L")}Z` }));
    }
    for (const { y, tone = "base" } of levels) {
      inside.append(draw("line", { class: `level tone-${tone}`, x1: left, x2: width - right, y1: sy(y), y2: sy(y) }));
    }
    for (const one of series) inside.append(this.#line(one));
    const outside = draw("g");
    for (const { x, label, tone = "best" } of marks) {
      if (x < across[0] || x > across[1]) continue;
      outside.append(draw("line", { class: `mark tone-${tone}`, x1: sx(x), x2: sx(x), y1: top - 4, y2: sy(up[0]) }));
      const room = 3.4 * label.length;
      const anchor = sx(x) < left + room ? "start" : sx(x) > width - right - room ? "end" : "middle";
      outside.append(
        draw("text", { class: `mark-label tone-${tone}`, x: sx(x), y: top - 10, "text-anchor": anchor }, label),
      );
    }
    this.#spread(outside);
    return draw("g", {}, draw("clipPath", { id: clip }, frame), inside, outside);
  }

  /** Separate the labels of two marks that would overlap: the left one ends, the right one begins at its line. */
  #spread(group) {
    const labels = [...group.querySelectorAll("text")].sort((a, b) => a.getAttribute("x") - b.getAttribute("x"));
    for (let k = 1; k < labels.length; k++) {
      const gap = labels[k].getAttribute("x") - labels[k - 1].getAttribute("x");
      if (gap < 3.6 * (labels[k].textContent.length + labels[k - 1].textContent.length)) {
        const [one, other] = [labels[k - 1], labels[k]];
        const { width } = this.scale;
        const [from, to] = [Number(one.getAttribute("x")), Number(other.getAttribute("x"))];
        const [wide, wider] = [one, other].map((label) => 7 * label.textContent.length);
        const left = Math.min(Math.max(from - 1, wide), width - wider - 6); // end of the left label; both stay inside the picture
        const right = Math.max(to + 1, left + 6);
        one.setAttribute("text-anchor", "end");
        one.setAttribute("x", left);
        other.setAttribute("text-anchor", "start");
        other.setAttribute("x", Math.min(right, width - wider));
      }
    }
  }

  #line({ points, tone = "main", step, bars, thickness }) {
    const { sx, sy, up } = this.scale;
    if (bars) {
      const group = draw("g", { class: `bars tone-${tone}` });
      for (const [x, y] of points) {
        const [from, to] = [sx(x), sx(x + thickness)];
        const [high, low] = [sy(y), sy(Math.max(0, up[0]))];
        group.append(
          draw("rect", {
            x: from + 0.5,
            width: Math.max(1, to - from - 1),
            y: high,
            height: Math.max(0, low - high),
            rx: 1.5,
          }),
        );
      }
      return group;
    }
    const parts = points.map(([x, y], k) => {
      const to = `${sx(x).toFixed(1)},${sy(y).toFixed(1)}`;
      return k === 0 ? `M${to}` : step ? `H${sx(x).toFixed(1)}V${sy(y).toFixed(1)}` : `L${to}`;
    });
    return draw("path", { class: `line tone-${tone}`, d: parts.join("") });
  }

  // -- reading out ------------------------------------------------------------------------------------------------------

  #xs() {
    return (this.#spec.series ?? [])
      .reduce((most, one) => (one.points.length > most.length ? one.points : most), [])
      .map((p) => p[0]);
  }

  #nearest(x) {
    let best = null;
    for (const one of this.#xs()) if (best === null || Math.abs(one - x) < Math.abs(best - x)) best = one;
    return best;
  }

  #point(event) {
    if (!this.scale) return;
    const { left, right, width, across } = this.scale;
    const at = event.clientX - this.picture.getBoundingClientRect().left;
    const x = across[0] + ((at - left) / (width - left - right)) * (across[1] - across[0]);
    const bar = (this.#spec.series ?? []).find((one) => one.bars);
    this.#at = this.#nearest(bar ? x - bar.thickness / 2 : x);
    this.#keys = false;
    this.#readOut();
  }

  #key(event) {
    if (!this.scale || !["ArrowLeft", "ArrowRight", "Home", "End", "Escape"].includes(event.key)) return;
    event.preventDefault();
    const xs = this.#xs();
    if (event.key === "Escape") return this.#leave();
    let k = this.#at === null ? -1 : xs.indexOf(this.#nearest(this.#at));
    k = event.key === "Home" ? 0 : event.key === "End" ? xs.length - 1 : k + (event.key === "ArrowLeft" ? -1 : 1);
    this.#at = xs[Math.min(Math.max(k, 0), xs.length - 1)];
    this.#keys = true;
    this.#readOut();
  }

  #leave() {
    this.#at = null;
    this.#readOut();
  }

  #rows(x) {
    const near = (points) =>
      points.reduce((best, p) => (best && Math.abs(best[0] - x) <= Math.abs(p[0] - x) ? best : p), null);
    const { series = [], bands = [], y } = this.#spec;
    const written = y.read ?? short;
    return series
      .filter((one) => one.points.length)
      .map((one) => {
        const point = near(one.points);
        const band = bands.find((b) => b.tone === (one.tone ?? "main") && b.points.length);
        const range = band ? near(band.points) : null;
        const text = written(point[1]) + (range ? ` (${written(range[1])} to ${written(range[2])})` : "");
        return { name: one.name ?? y.label ?? "", text, tone: one.tone ?? "main", y: point[1], x: point[0] };
      });
  }

  #readX(x) {
    const { read, kind } = this.#spec.x;
    return read ? read(x) : kind === "time" ? time(x) : short(x);
  }

  #readOut() {
    const shown = this.#at !== null && this.scale;
    this.bubble.hidden = !shown;
    if (this.cross) this.cross.setAttribute("visibility", shown ? "visible" : "hidden");
    if (!shown) return;
    const { sx, sy, top, bottom, tall, width } = this.scale;
    const bar = (this.#spec.series ?? []).find((one) => one.bars);
    const x = this.#nearest(this.#at);
    const at = sx(x + (bar ? bar.thickness / 2 : 0));
    const rows = this.#rows(x);
    fill(this.cross, draw("line", { x1: at, x2: at, y1: top, y2: tall - bottom }));
    if (!bar) {
      for (const row of rows) {
        this.cross.append(draw("circle", { class: `tone-${row.tone}`, cx: sx(row.x), cy: sy(row.y), r: 4 }));
      }
    }
    const lines = rows.map((row) =>
      el("span", { class: `key tone-${row.tone}` }, row.name ? `${row.name}: ${row.text}` : row.text),
    );
    fill(this.bubble, el("strong", {}, this.#readX(x)), ...lines);
    const half = this.bubble.offsetWidth / 2;
    this.bubble.style.left = `${Math.min(Math.max(at, half + 2), width - half - 2)}px`;
    if (this.#keys) this.spoken.textContent = `${this.#readX(x)}: ${rows.map((r) => `${r.name} ${r.text}`).join(", ")}`;
  }

  /** Fill the table, of at most 25 rows, when it is open. */
  #tabulate() {
    if (!this.#spec || !this.table.open) return;
    const xs = this.#xs();
    const every = Math.max(1, Math.ceil(xs.length / 25));
    const selected = xs.filter((_, k) => k % every === 0 || k === xs.length - 1);
    const names = this.#rows(xs[0] ?? 0).map((row) => row.name);
    const head = el(
      "tr",
      {},
      el("th", { scope: "col" }, this.#spec.x.label ?? ""),
      ...names.map((n) => el("th", { scope: "col" }, n)),
    );
    const body = selected.map((x) =>
      el("tr", {}, el("th", { scope: "row" }, this.#readX(x)), ...this.#rows(x).map((row) => el("td", {}, row.text))),
    );
    fill(
      this.table,
      el("summary", {}, "As a table"),
      el(
        "div",
        { class: "scroll" },
        el(
          "table",
          {},
          el("caption", { class: "unseen" }, this.title),
          el("thead", {}, head),
          el("tbody", {}, ...body),
        ),
      ),
    );
  }
}
