// The icicle and the roofline, drawn by plotly. Labels are plain text to it: what could be its markup is escaped.

const CONFIG = { displayModeBar: false, responsive: true, showLink: false, plotlyServerURL: "", topojsonURL: "" };

// Kinds of kernels, in colours that the colour-blind tell apart (Okabe and Ito).
const KINDS = [
  { title: "matmul", colour: "#0072B2", categories: ["matmul", "convolution"] },
  { title: "attention", colour: "#E69F00", categories: ["attention"] },
  { title: "grouped matmul", colour: "#009E73", categories: ["grouped_matmul"] },
  { title: "normalization, softmax, reduction", colour: "#CC79A7", categories: ["normalization", "softmax", "reduction", "pooling", "sort"] },
  { title: "elementwise, activation", colour: "#56B4E9", categories: ["elementwise", "activation"] },
  { title: "copy, gather, scatter, factory", colour: "#D55E00", categories: ["copy", "gather", "scatter", "factory"] },
];
const OTHER = { title: "other", colour: "#999999" };
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

class Icicle {
  constructor(state, model) {
    this.state = state;
    this.model = model;
    this.box = element("icicle");
    for (const { title, colour } of [...KINDS, OTHER]) {
      if (!model.nodes.some((node) => node.costs && node.formulas.some((text) => text !== "0") && kindOf(node.category).title === title)) continue;
      const swatch = made("span", { class: "swatch" });
      swatch.style.background = colour;
      element("legend").append(made("li", {}, swatch, title));
    }
  }

  // A kernel has its own cost, a module that of what is in it: so every cost is in the picture once.
  async show(result) {
    const parts = this.state.metric === "parameters" ? this.parameters() : this.costs(result);
    const whole = parts.reduce((sum, part) => added(sum, part.own), 0n);
    this.note(result, whole);
    if (whole === 0n) return Plotly.purge(this.box);
    const trace = {
      type: "icicle",
      ids: parts.map(({ id }) => id),
      parents: parts.map(({ up }) => up),
      labels: parts.map(({ name }) => shortened(name, 40)),
      values: parts.map(({ own }) => float(own, 1n)),
      text: parts.map(({ all, text }) => `${text}<br>${percent(all, whole)} of all`),
      hovertext: parts.map(({ name, about, all, text }) => `<b>${shortened(name)}</b><br>${about}${text}<br>${percent(all, whole)} of all`),
      branchvalues: "remainder",
      leaf: { opacity: 1 },
      hoverinfo: "text",
      texttemplate: "%{label}  %{percentRoot:.1%}",
      sort: false,
      tiling: { orientation: "v", pad: 1 },
      marker: { colors: parts.map(({ colour }) => colour), line: { width: 1, color: colour("--page") } },
      pathbar: { visible: true, thickness: 22 },
      maxdepth: 7,
    };
    await Plotly.react(this.box, [trace], layout({ margin: { t: 26, r: 0, b: 0, l: 0 }, height: 420, uniformtext: { minsize: 10, mode: "hide" }, xaxis: { visible: false }, yaxis: { visible: false } }), CONFIG);
    if (!this.listening) {
      this.listening = true;
      this.box.on("plotly_icicleclick", (event) => this.clicked && this.state.metric !== "parameters" && this.clicked(Number(event.points[0].id)));
    }
  }

  note(result, whole) {
    const metric = METRICS[this.state.metric];
    const changed = this.state.data.variables.some(({ name, slider, value }) => !slider && !name.endsWith("_bytes") && this.state.changedFrom(name, value));
    const notes = [];
    if (whole === 0n) notes.push(`nothing to show: the ${metric ? metric.title : "parameters"} are 0 at these values`);
    if (!metric) notes.push(`parameters that each module holds itself${changed ? "; of the analysis's config, NOT of the values that you changed" : ""}`);
    else if (this.state.metric === "bound") notes.push(`each kernel's bound on ${result.device.name}, one after the other: peak rates, not a measurement`);
    notes.push("A click goes into a part and chooses it below.");
    element("icicle-note").textContent = notes.join(". ");
    element("legend").hidden = !metric;
  }

  costs(result) {
    const metric = METRICS[this.state.metric];
    const grey = colour("--module");
    const found = [];
    this.model.nodes.forEach((node, index) => {
      const all = metric.of(result.total(index));
      if (all === 0n) return;
      const kernel = this.model.isKernel(index);
      const runs = result.runs(index);
      const times = result.costs[index].times;
      const about = [node.class === undefined ? node.category : this.model.data.classes[node.class].name, node.path, runs === 1n ? "" : `${grouped(runs)} runs`];
      found.push({
        id: String(index),
        up: index ? String(node.up) : "",
        name: times === 1n ? node.name : `${node.name} ×${times}`,
        own: kernel ? all : 0n,
        all,
        about: about.filter(Boolean).map((text) => `${shortened(text)}<br>`).join(""),
        text: this.state.metric === "bound" ? seconds(all, result.device.denominator) : figure(all, metric.unit),
        colour: kernel ? kindOf(node.category).colour : grey,
      });
    });
    return found;
  }

  parameters() {
    const { parameters } = this.model.data;
    const all = parameters.map(({ own }) => BigInt(own));
    for (let index = all.length - 1; index > 0; index--) all[parameters[index].up] += all[index];
    const grey = colour("--module");
    const found = parameters.map(({ up, name, path, own }, index) => ({
      id: String(index),
      up: up < 0 ? "" : String(up),
      name,
      own: BigInt(own),
      all: all[index],
      about: path ? `${shortened(path)}<br>` : "",
      text: figure(all[index], ""),
      colour: BigInt(own) ? KINDS[0].colour : grey,
    }));
    return found.filter(({ all }) => all > 0n);
  }
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
  { key: "prefill", symbol: "square", colour: "#0072B2", size: 13 },
  { key: "decode", symbol: "diamond", colour: "#D55E00", size: 14 },
  { key: "here", symbol: "star", colour: "#CC79A7", size: 15 },
];
const PARTS = 6;

class Roofline {
  constructor(state, model) {
    this.state = state;
    this.model = model;
    this.box = element("roofline");
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
    const narrow = this.box.clientWidth < 520;
    const shown = layout({
      height: narrow ? 560 : 440,
      margin: { t: 10, r: 10, b: narrow ? 40 : 50, l: 60 },
      showlegend: true,
      legend: narrow ? { orientation: "h", y: -0.16, yanchor: "top", x: 0, font: { size: 11 } } : { x: 1.02, y: 1, font: { size: 12 } },
      xaxis: { type: "log", title: { text: "FLOPs a byte" }, range: [Math.log10(left), Math.log10(right)], exponentformat: "power", dtick: 1 },
      yaxis: { type: "log", title: { text: "FLOP/s" }, exponentformat: "power", dtick: 1 },
    });
    await Plotly.react(this.box, [...roofs, ...traces], shown, CONFIG);
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

  trace(name, points, { symbol, colour: fill, size }) {
    return {
      x: points.map(({ x }) => x),
      y: points.map(({ y }) => y),
      hovertext: points.map(({ text }) => text),
      hoverinfo: "text",
      mode: "markers",
      name: shortened(name, 34),
      marker: { symbol, color: fill, size, line: { color: colour("--text"), width: 1 } },
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
      return point ? [this.trace(`${name} ${percent(cost.bound, result.whole_cost.bound)}`, [point], { symbol: symbols[place], colour: KINDS[place].colour, size: 10 })] : [];
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
