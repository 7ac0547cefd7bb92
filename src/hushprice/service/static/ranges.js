/** Values with their intervals as bars, one under the other, on one scale. */

import { el, fill } from "./common.js";

/** show([{ name, value, low, high, tone }], written): `written` makes text of a number. */
export class Ranges {
  constructor(parent, { title }) {
    this.title = title;
    this.box = el("div", { class: "ranges", role: "list", "aria-label": title });
    parent.append(this.box);
  }

  show(rows, written) {
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
        const told = row.low === undefined ? written(row.value) : `${written(row.value)}`;
        const wide = row.low === undefined ? "" : `${written(row.low)} to ${written(row.high)}`;
        return el(
          "div",
          { class: `row tone-${row.tone}`, role: "listitem" },
          el("span", { class: "name" }, row.name),
          el("span", { class: "value" }, told),
          el("span", { class: "rail", "aria-hidden": "true" }, range, dot),
          el("span", { class: "wide" }, wide),
        );
      }),
    );
  }
}
