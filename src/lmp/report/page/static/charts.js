// The roofline, drawn by plotly. Labels are plain text to it: what could be its markup is escaped.

const CONFIG = { displayModeBar: false, showLink: false, plotlyServerURL: "", topojsonURL: "" };

// Kinds of kernels. Their colours are in page.css as --kind-KEY.
const KINDS = [
  { key: "matmul", title: "matmul", categories: ["matmul", "convolution"] },
  { key: "attention", title: "attention", categories: ["attention"] },
  { key: "grouped", title: "grouped matmul", categories: ["grouped_matmul"] },
  { key: "reduction", title: "normalization, softmax, reduction", categories: ["normalization", "softmax", "reduction", "pooling", "sort"] },
  { key: "elementwise", title: "elementwise, activation", categories: ["elementwise", "activation"] },
  { key: "copy", title: "copy, gather, scatter, factory", categories: ["copy", "gather", "scatter", "factory"] },
];
const OTHER = { key: "other", title: "other", categories: [] };
const kindOf = (category) => KINDS.find(({ categories }) => categories.includes(category)) || OTHER;

const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
const shortened = (text, most = 60) => escaped(text.length > most ? `${text.slice(0, most - 1)}…` : text);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function layout(more) {
  const [text, line] = [colour("--text"), colour("--line")];
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, tickcolor: line };
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 12, color: text },
    hoverlabel: { bgcolor: colour("--raised"), bordercolor: line, font: { color: text, family: "system-ui, sans-serif" }, align: "left" },
    ...more,
    xaxis: { ...axis, ...more.xaxis },
    yaxis: { ...axis, ...more.yaxis },
  };
}

// Where a part stands: its FLOPs a byte, and the FLOP/s that it reaches where each of its kernels takes its time bound.
function spot(name, cost, device) {
  const bytes = added(cost.read, cost.write);
  if (cost.flops === 0n || bytes === 0n || cost.bound === 0n) return null;
  const rate = divided(cost.flops * device.denominator, cost.bound);
  return {
    x: float(cost.flops, bytes),
    y: float(rate, 1n),
    text: `<b>${shortened(name)}</b><br>${ratio(cost.flops, bytes)} FLOPs a byte<br>${figure(floor(rate), "FLOP/s")} at most<br>${seconds(cost.bound, device.denominator)} at least`,
  };
}

const MARKS = [
  { symbol: "square", kind: "matmul", size: 13 },
  { symbol: "diamond", kind: "copy", size: 14 },
  { symbol: "star", kind: "reduction", size: 15 },
];
const PARTS = 6;

class Roofline {
  constructor(state, model) {
    this.state = state;
    this.model = model;
    this.box = element("roofline");
  }

  // Calls back when the width is not the one that was drawn.
  resized(draw) {
    new ResizeObserver(() => this.box.clientWidth !== this.drawn && draw()).observe(this.box);
  }

  async show(result) {
    const { device } = result;
    const traces = [...this.spots(result), ...this.parts(result)];
    const xs = traces.flatMap(({ x }) => x).filter((x) => x > 0);
    const knee = float(device.matmul, device.bandwidth);
    const [left, right] = [Math.min(0.05, ...xs) / 2, Math.max(knee * 10, ...xs) * 2];
    const roof = (rate, name, dash) => {
      const peak = Number(rate);
      const bend = peak / Number(device.bandwidth);
      return { x: [left, bend, right], y: [left * Number(device.bandwidth), peak, peak], mode: "lines", name, hoverinfo: "skip", line: { color: colour("--quiet"), width: 2, dash } };
    };
    const roofs = [roof(device.matmul, `matmul peak ${figure(device.matmul, "FLOP/s")}`, "solid"), roof(device.other, `other peak ${figure(device.other, "FLOP/s")}`, "dash")];
    // The size is told: what plotly would find out itself is the least height of the box, whenever the window changes.
    const width = this.box.clientWidth;
    const narrow = width < 520;
    this.drawn = width;
    const shown = layout({
      autosize: false,
      width,
      height: narrow ? 560 : 440,
      margin: { t: 10, r: 10, b: narrow ? 40 : 50, l: 60 },
      showlegend: true,
      legend: narrow ? { orientation: "h", y: -0.16, yanchor: "top", x: 0, font: { size: 11 } } : { x: 1.02, y: 1, font: { size: 12 } },
      xaxis: { type: "log", title: { text: "FLOPs a byte" }, range: [Math.log10(left), Math.log10(right)], exponentformat: "power", dtick: 1 },
      yaxis: { type: "log", title: { text: "FLOP/s" }, exponentformat: "power", dtick: 1 },
    });
    await Plotly.react(this.box, [...roofs, ...traces], shown, CONFIG);
    element("roofline-device").textContent = `of ${device.name}`;
    element("roofline-note").textContent = `${device.source}: ${figure(device.matmul, "FLOP/s")} in bfloat16 matmuls, ${figure(device.other, "FLOP/s")} elsewhere, ${figure(device.bandwidth, "B/s")}. ` +
      "A point below the roof is of parts that cannot all reach it. Bounds, not measurements.";
  }

  // The whole model in both phases, with the batch, config and precision of the reader, and where he is.
  spots(result) {
    const { values, data } = this.state;
    const whole = (name, found, mark) => {
      const point = found.trouble.length ? null : spot(name, found.whole_cost, found.device);
      return point && this.trace(name, [point], mark);
    };
    const found = [];
    if (Object.keys(data.phases).length) {
      const now = phaseOf(values);
      const tokens = values.seq_len > 1n ? values.seq_len : BigInt(data.phases.prefill.seq_len);
      const cached = values.cache_len > 0n ? values.cache_len : BigInt(data.phases.decode.cache_len);
      const at = (sizes) => this.model.at({ ...values, ...sizes }, this.state.device);
      found.push(whole(`prefill of ${grouped(tokens)}`, at({ seq_len: tokens, cache_len: 0n }), MARKS[0]));
      found.push(whole(`decode on ${grouped(cached)}`, at({ seq_len: 1n, cache_len: cached }), MARKS[1]));
      if (now === "chunked prefill") found.push(whole(`${grouped(values.seq_len)} on ${grouped(values.cache_len)}`, result, MARKS[2]));
    } else found.push(whole("the whole", result, MARKS[2]));
    return found.filter(Boolean);
  }

  trace(name, points, { symbol, kind, size }) {
    return {
      x: points.map(({ x }) => x),
      y: points.map(({ y }) => y),
      hovertext: points.map(({ text }) => text),
      hoverinfo: "text",
      mode: "markers",
      name: shortened(name, 34),
      marker: { symbol, color: colour(`--kind-${kind}`), size, line: { color: colour("--text"), width: 1 } },
    };
  }

  // The classes that take most of the time bound at the reader's sizes: those that have no module with modules in it.
  parts(result) {
    const sums = new Map();
    for (const index of this.components()) {
      const node = this.model.nodes[index];
      const { name: own, path } = this.model.data.classes[node.class];
      const name = path.startsWith("torch.") ? `${node.name} (${own})` : own;
      if (!sums.has(name)) sums.set(name, none());
      addTo(sums.get(name), result.total(index));
    }
    const largest = [...sums].filter(([, cost]) => compared(cost.bound, 0n) > 0).sort(([, a], [, b]) => compared(b.bound, a.bound)).slice(0, PARTS);
    const symbols = ["circle", "triangle-up", "triangle-down", "cross", "x", "hexagon"];
    return largest.flatMap(([name, cost], place) => {
      const point = spot(name, cost, result.device);
      return point ? [this.trace(`${name} ${percent(cost.bound, result.whole_cost.bound)}`, [point], { symbol: symbols[place], kind: KINDS[place].key, size: 10 })] : [];
    });
  }

  components() {
    const modules = (index) => this.model.inside[index].filter((child) => !this.model.isKernel(child) && !this.model.nodes[child].own);
    const found = [];
    const enter = (index) => {
      const inner = modules(index);
      if (index && !inner.some((child) => modules(child).length)) found.push(index);
      else inner.forEach(enter);
    };
    enter(0);
    return found;
  }
}
