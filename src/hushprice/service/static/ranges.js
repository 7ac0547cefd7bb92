/** Values with their intervals as horizontal bars on one scale. */

import { el, fill } from "./common.js";

/** show([{ name, value, low, high, tone }], format): `format` converts a number to text. */
export class Ranges {
  constructor(parent, { title }) {
    this.title = title;
    this.box = el("div", { class: "ranges", role: "list", "aria-label": title });
    parent.append(this.box);
  }

  show(rows, format) {
    const ends = rows.flatMap((row) => [row.low ?? row.value, row.high ?? row.value, row.value]);
    const low = Math.min(0, ...ends);
    const high = Math.max(...ends) + 0.04 * (Math.max(...ends) - low || 1);
    const place = (value) => (100 * (value - low)) / (high - low);
    fill(
      this.box,
      ...rows.map((row) => {
        const range = el("span", { class: "range" });
        const dot = el("span", { class: "dot" });
        range.style.left = `${place(row.low ?? row.value)}%`;
        range.style.width = `${Math.max(0, place(row.high ?? row.value) - place(row.low ?? row.value))}%`;
        dot.style.left = `${place(row.value)}%`;
        const interval = row.low === undefined ? "" : `${format(row.low)} to ${format(row.high)}`;
        return el(
          "div",
          { class: `row tone-${row.tone}`, role: "listitem" },
          el("span", { class: "name" }, row.name),
          el("span", { class: "value" }, format(row.value)),
          el("span", { class: "rail", "aria-hidden": "true" }, range, dot),
          el("span", { class: "wide" }, interval),
        );
      }),
    );
  }
}
