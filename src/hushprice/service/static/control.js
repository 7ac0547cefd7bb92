/** The admin's controls on the dashboard: mode, guardrails, rollback, forgetting, and the history of changes. */

import { Refused, el, fill, moment, money, say, whole } from "./common.js";

const $ = (id) => document.getElementById(id);
const WENT = { live: "went live", shadow: "went into shadow mode", frozen: "was frozen" };

/** The effect of an event on the product, in words. */
function describe(event, currency) {
  if (event.kind === "mode") return WENT[event.mode] ?? "changed mode";
  if (event.kind === "rollback") return `was rolled back to version ${whole(event.version)}`;
  if (event.kind === "forget") return `began to forget: an outcome counts half after ${whole(event.half_life)} others`;
  if (event.kind !== "guardrails") return "was changed";
  const parts = [];
  if (event.low !== null) parts.push(`from ${money(event.low, currency)}`);
  if (event.high !== null) parts.push(`up to ${money(event.high, currency)}`);
  if (event.ladder?.length) parts.push(`${event.ladder.length} prices only`);
  if (event.largest_step !== null) parts.push(`steps of at most ${money(event.largest_step, currency)}`);
  return parts.length ? `got guardrails: ${parts.join(", ")}` : "lost its guardrails";
}

export class Control {
  #now; // () => { api, product, summary }
  #look; // reads the product again

  constructor({ now, look }) {
    [this.#now, this.#look] = [now, look];
    $("modes").addEventListener("click", (event) => {
      const mode = event.target.closest("button")?.dataset.mode;
      if (mode) this.#change("mode", { mode }, `The mode is ${mode} now.`);
    });
    $("rails").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#setRails();
    });
    $("back").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#rollBack();
    });
    $("forget").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#forget();
    });
  }

  /** Let old outcomes count less. */
  #forget() {
    const half = Number($("forget").elements.half_life.value);
    return this.#change("forget", { half_life: half }, `An outcome counts half after ${whole(half)} others now.`);
  }

  /** Enable the controls if the key may change the product. */
  allow(may) {
    for (const part of [$("modes"), ...document.querySelectorAll(".control form fieldset")]) part.disabled = !may;
    const text = may
      ? "Everything here takes effect at once, for the next customer."
      : "This key may look, not change anything: that takes an admin key.";
    say($("control-note"), text);
  }

  /** Reset the controls for another product. */
  begin() {
    const hidden = this.#now().summary.kind === "private";
    this.#fillRails();
    $("step-field").hidden = hidden;
    $("forget").hidden = hidden;
    $("forget").elements.half_life.value = "";
    say(
      $("step-note"),
      hidden ? "A private product has no largest step: the last price would have to leave a device." : "",
    );
    $("control-answer").textContent = "";
    $("back").elements.exact.value = "";
  }

  /** Update the controls after the product has changed. */
  show() {
    const { mode } = this.#now().summary;
    for (const button of $("modes").querySelectorAll("button")) {
      button.setAttribute("aria-pressed", button.dataset.mode === mode);
    }
  }

  #fillRails() {
    const { guardrails, prices } = this.#now().summary;
    const fields = $("rails").elements;
    for (const name of ["low", "high", "largest_step"]) fields[name].value = guardrails[name] ?? "";
    [fields.low.placeholder, fields.high.placeholder] = prices.map(String);
    fields.ladder.value = guardrails.ladder.join(", ");
  }

  async showHistory() {
    const { api, product } = this.#now();
    const { events, versions } = await api.get(`/v1/products/${product}/history`);
    const { summary } = this.#now();
    if (summary?.product !== product) return;
    const lines = events
      .slice(-30)
      .reverse()
      .map((event) =>
        el(
          "li",
          {},
          el("time", {}, moment(event.at)),
          el("span", {}, `${product} ${describe(event, summary.currency)}`),
          event.by ? el("span", { class: "by" }, `by ${event.by}`) : null,
        ),
      );
    fill($("events"), ...(lines.length ? lines : [el("li", { class: "soft" }, "Nothing so far.")]));
    const [list, before] = [$("versions"), $("versions").value];
    const sorted = [...versions].sort((a, b) => b.version - a.version);
    const every = Math.max(1, Math.ceil(sorted.length / 40));
    const listed = sorted.filter((one, k) => k % every === 0 || one.version === 0);
    fill(
      list,
      ...listed.map((one) => {
        const text = one.at
          ? `${moment(one.at)} (version ${whole(one.version)}, ${whole(one.customers)} customers)`
          : "the very beginning";
        return el("option", { value: one.version }, text);
      }),
    );
    if (listed.some((one) => String(one.version) === before)) list.value = before;
  }

  #answer(text, fine) {
    $("control-answer").classList.toggle("fine", fine);
    $("control-answer").textContent = text;
  }

  /** Send a change and show the result. */
  async #change(path, body, done) {
    const { api, product } = this.#now();
    try {
      await api.post(`/v1/products/${product}/${path}`, body);
      this.#answer(done, true);
      await this.#look();
      if (path === "guardrails") this.#fillRails(); // other changes keep what is being typed there
      await this.showHistory();
    } catch (problem) {
      this.#answer(problem instanceof Refused ? problem.message : "The service cannot be reached: see above.", false);
    }
  }

  #setRails() {
    const fields = $("rails").elements;
    const number = (name) => (fields[name].value.trim() === "" ? null : Number(fields[name].value));
    const ladder = fields.ladder.value
      .split(/[,;\s]+/)
      .filter(Boolean)
      .map(Number);
    if (ladder.some(Number.isNaN)) {
      return this.#answer("The prices must be numbers with commas between them, as in 1.99, 2.49.", false);
    }
    const step = this.#now().summary.kind === "private" ? null : number("largest_step");
    return this.#change(
      "guardrails",
      { low: number("low"), high: number("high"), ladder, largest_step: step },
      "The guardrails are set.",
    );
  }

  #rollBack() {
    const { version, exact } = $("back").elements;
    const chosen = exact.value === "" ? version.value : exact.value;
    if (chosen === "") return;
    const number = Number(chosen);
    const name = number === 0 ? "the very beginning" : `version ${whole(number)}`;
    say($("sure-title"), `Roll ${this.#now().product} back to ${name}?`);
    say(
      $("sure-words"),
      "Prices will be those of that moment at once, and what was learned since is no longer used. The log keeps it all: you can come back by rolling back to a later version. Mode and guardrails stay as they are.",
    );
    const sure = $("sure");
    sure.returnValue = "no";
    sure.onclose = () => {
      if (sure.returnValue === "yes") {
        this.#change("rollback", { version: number }, `What is known is again that of ${name}.`);
      }
    };
    sure.showModal();
  }
}
