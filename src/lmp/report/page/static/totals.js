// The answers, other totals, what does not hold at these values, and where they are.

const MUCH = 2n; // times the compulsory bytes: above it the page says what the eager ones are spent on

const EAGER_BYTES = "as PyTorch runs it, operator by operator";
const COMPULSORY_BYTES = "what no engine can avoid: inputs, weights and cache once, outputs once";
const EXPLAINED = /^as PyTorch|^what no engine|^before this call|times the compulsory/; // left out where the page is narrow

// part / count, of any size.
const share = (part, count) => reduced(aboveOf(part), belowOf(part) * count);

class Totals {
  constructor(state, model) {
    this.state = state;
    this.model = model;
    this.on = new OnDevice(model.data.on_device);
    this.cards = new DeviceCards(element("on-device"), this.on);
    element("copy").addEventListener("click", () => this.copy());
  }

  // The command is chosen, so that it can be copied by hand where the browser gives no clipboard.
  copy() {
    getSelection().selectAllChildren(element("command"));
    if (navigator.clipboard) navigator.clipboard.writeText(element("command").textContent).catch(() => {});
  }

  onDevice(result) {
    const { ask, engine, word } = this.state;
    const { reason } = this.model.data.on_device;
    element("on-device").hidden = element("ask").hidden = Boolean(reason);
    element("no-device").hidden = !reason;
    element("no-device").textContent = reason ? `No time and no memory on a device: ${reason}.` : "";
    if (reason) return;
    this.cards.show(ask, engine, result.found);
    element("command").textContent = this.on.command(ask, engine, word);
  }

  show(result) {
    this.result = result;
    this.onDevice(result);
    const { totals, device } = result;
    const moved = added(totals.read, totals.write);
    const bound = result.whole_cost.bound;
    this.list = element("answers");
    this.list.replaceChildren();
    this.answers(totals, moved);
    this.list = element("totals");
    this.list.replaceChildren();
    this.add("matmul_flops", "matmul FLOPs", totals.matmul_flops, "FLOP");
    this.add("read", "bytes read", totals.read, "B");
    this.add("write", "bytes written", totals.write, "B");
    this.text("intensity", "FLOPs per byte, eager", ratio(totals.flops, moved), `${grouped(totals.flops)} / ${grouped(moved)}`);
    if (totals.parameters_count !== undefined) this.add("parameters_count", "parameters", totals.parameters_count, "");
    this.text("bound", `time bound on ${device.name}`, seconds(bound, device.denominator), "each kernel at peak rates, one after the other; not a measurement");
  }

  answers(totals, moved) {
    const { values } = this.state;
    const tokens = values.seq_len === undefined ? null : values.batch_size === undefined ? values.seq_len : values.batch_size * values.seq_len;
    const each = (value, unit) => (tokens === null || tokens === 1n ? [] : [`${figure(share(value, tokens), unit)} per token`]);
    this.add("flops", "FLOPs of this call", totals.flops, "FLOP", each(totals.flops, "FLOP"));
    this.add("bytes", "bytes, eager", moved, "B", [EAGER_BYTES, ...each(moved, "B"), ...this.spent(totals, moved)]);
    if (totals.compulsory === undefined) this.unknown("compulsory", "bytes, compulsory", "the analysis does not have them");
    else this.add("compulsory", "bytes, compulsory", totals.compulsory, "B", [COMPULSORY_BYTES, ...each(totals.compulsory, "B")]);
    this.weights(totals);
    this.cache();
  }

  // Why the eager bytes are many, where they are: the kind of kernel that moves most.
  spent(totals, moved) {
    const { compulsory } = totals;
    if (compulsory === undefined || compared(compulsory, 0n) <= 0 || compared(moved, scaled(MUCH, compulsory)) <= 0) return [];
    const sums = new Map();
    this.model.nodes.forEach((node, index) => {
      if (!node.costs) return;
      const { read, write } = this.result.total(index);
      const kind = kindOf(node.category).title;
      sums.set(kind, added(sums.get(kind) || 0n, added(read, write)));
    });
    const [kind, most] = [...sums].sort(([, a], [, b]) => compared(b, a))[0];
    return [`${ratio(moved, compulsory)} times the compulsory; ${percent(most, moved)} of it in ${kind}`];
  }

  weights(totals) {
    const { quantised, stored } = this.model.data;
    const { weights } = this.result.held;
    const changed = this.state.reconfigured.length > 0;
    if (weights !== undefined) this.add("weights", "weights held", weights, "B", [`${figure(totals.parameters_count, "")} parameters of ${grouped(this.state.values.w_bytes)} B`]);
    else if (stored === null) this.unknown("weights", "weights held", "the analysis does not have them");
    else this.add("weights", "weights held", BigInt(stored), "B", [`as the checkpoint stores them (${quantised})`, ...(changed ? ["of the analysis's config, NOT of the values that you changed"] : [])]);
  }

  cache() {
    const { cache, cache_new: fresh } = this.result.held;
    if (this.state.values.cache_len === undefined) return this.unknown("cache", "KV cache held", "the class has no cache", "none");
    if (cache === undefined) return this.unknown("cache", "KV cache held", "the formulas do not have it apart");
    return this.add("cache", "KV cache held", cache, "B", ["before this call", `${this.written(fresh, "B")} are added by it`]);
  }

  written(value, unit) {
    return this.state.exact ? `${grouped(value)} ${unit}`.trim() : figure(value, unit);
  }

  add(name, title, value, unit, notes = []) {
    this.text(name, title, this.written(value, unit), grouped(value), value, notes);
  }

  unknown(name, title, why, text = "not known") {
    this.text(name, title, text, why, undefined, [why]);
  }

  text(name, title, text, hint, value, notes = []) {
    const shown = made("dd", { title: hint }, text);
    if (value !== undefined) shown.dataset.exact = value.toString();
    this.list.append(made("div", { "data-total": name }, made("dt", {}, title), shown, ...notes.map((note) => made("dd", { class: EXPLAINED.test(note) ? "why more" : "why" }, note))));
  }
}

// What of the address was of no use: a link that is half followed says so.
function showIgnored({ ignored }) {
  const box = element("ignored");
  box.hidden = ignored.length === 0;
  box.textContent = ignored.length ? `The address has what this page does not know, and leaves out: ${ignored.map(quoted).join(", ")}.` : "";
}

function showPoint(state) {
  const phase = phaseOf(state.values);
  const config = (name) => `${name} = ${grouped(state.values[name])}`;
  const sizes = state.data.variables.filter(({ slider }) => slider).map(({ name }) => config(name));
  const bytes = ["w_bytes", "a_bytes", "kv_bytes"].map(config);
  const changed = state.data.variables
    .filter(({ name, slider, value }) => !slider && !bytes.some((text) => text.startsWith(`${name} `)) && state.changedFrom(name, value))
    .map(({ name, value }) => `${config(name)} instead of ${grouped(BigInt(value))}`);
  element("point").textContent = [phase, ...sizes, ...bytes, ...changed].filter(Boolean).join(", ");
}

function showHolding(state, result) {
  const used = ({ text }) => [...text.matchAll(/\{(\w+)\}/g)].map((match) => match[1]);
  const broken = element("broken");
  const problems = result.trouble.slice(0, 5);
  const more = result.trouble.length - problems.length;
  const lines = [
    ...problems.map((text) => made("li", {}, text)),
    ...(more > 0 ? [made("li", {}, `and ${more} more`)] : []),
    ...result.violated.map((assumption) => {
      const values = [...new Set(used(assumption))].map((name) => `${name} = ${grouped(state.values[name])}`);
      return made("li", {}, made("code", {}, assumption.text), ` does not hold (${values.join(", ")})`);
    }),
  ];
  broken.hidden = lines.length === 0;
  broken.replaceChildren();
  if (lines.length) {
    const title = result.trouble.length ? "The figures below say nothing" : "The formulas were derived for where this holds";
    broken.append(made("strong", {}, title), made("ul", {}, ...lines));
  }
  const status = document.querySelector("[data-verified]");
  if (status) {
    status.textContent = lines.length ? "not verified at these values" : "verified";
    status.className = `status ${lines.length ? "failed" : "verified"}`;
  }
  const violated = new Set(result.violated);
  const all = state.data.assumptions.map((assumption) => {
    const held = !violated.has(assumption);
    return made("li", { class: held ? "held" : "violated" }, made("span", { class: "sign" }, held ? "holds" : "does not hold"), " ", made("code", {}, assumption.text));
  });
  element("assumptions").replaceChildren(...(all.length ? all : [made("li", {}, "at all sizes: the analysis has no assumptions")]));
}
