// Totals, what does not hold at these values, and where they are.

class Totals {
  constructor(state) {
    this.state = state;
    this.list = element("totals");
  }

  show(result) {
    const { totals, device } = result;
    const moved = added(totals.read, totals.write);
    const bound = result.whole_cost.bound;
    this.list.replaceChildren();
    this.add("flops", "FLOPs", totals.flops, "FLOP");
    this.add("matmul_flops", "of it matmul", totals.matmul_flops, "FLOP");
    this.add("read", "bytes read", totals.read, "B");
    this.add("write", "bytes written", totals.write, "B");
    if (totals.compulsory !== undefined) this.add("compulsory", "compulsory bytes", totals.compulsory, "B", "inputs, weights and cache once; outputs once");
    this.text("intensity", "FLOPs a byte", ratio(totals.flops, moved), `${grouped(totals.flops)} / ${grouped(moved)}`);
    if (totals.parameters_count !== undefined) this.add("parameters_count", "parameters", totals.parameters_count, "");
    this.text("bound", `time bound on ${device.name}`, seconds(bound, device.denominator), "each kernel at peak rates, one after the other; not a measurement");
  }

  add(name, title, value, unit, hint) {
    const text = this.state.exact ? `${grouped(value)} ${unit}`.trim() : figure(value, unit);
    this.text(name, title, text, hint ? `${grouped(value)}: ${hint}` : grouped(value), value);
  }

  text(name, title, text, hint, value) {
    const shown = made("dd", { title: hint }, text);
    if (value !== undefined) shown.dataset.exact = value.toString();
    this.list.append(made("div", { "data-total": name }, made("dt", {}, title), shown));
  }
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
  const violated = new Set(result.violated);
  const all = state.data.assumptions.map((assumption) => {
    const held = !violated.has(assumption);
    return made("li", { class: held ? "held" : "violated" }, made("span", { class: "sign" }, held ? "holds" : "does not hold"), " ", made("code", {}, assumption.text));
  });
  element("assumptions").replaceChildren(...(all.length ? all : [made("li", {}, "at all sizes: the analysis has no assumptions")]));
}
