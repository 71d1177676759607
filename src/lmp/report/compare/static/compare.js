// The page: what is chosen, the table, the plot, and the address that leads to the same figures.

const AXES = { batch_size: "batch size", length: "tokens" };

class Comparison extends State {
  start() {
    this.values = Object.fromEntries(this.data.variables.map(({ name, value }) => [name, exactNumber(value)]));
    this.touched = new Set();
    this.refused = new Map();
    this.ignored = [];
    this.models = new Set(this.data.first);
    this.device = this.data.devices[0].id;
    this.tp = 1;
    this.engine = this.data.engines[0];
    this.dtype = "";
    this.x = "batch_size";
    this.y = "rate";
    this.exact = false;
  }

  readChoice(name, text) {
    const known = new Set(this.data.models.map(({ key }) => key));
    if (name === "models") {
      const keys = text.split(",").filter(Boolean);
      this.models = new Set(keys.filter((key) => known.has(key)));
      this.ignored.push(...keys.filter((key) => !known.has(key)).map((key) => `model ${key}`));
    } else if (name === "device" && this.data.devices.some(({ id }) => id === text)) this.device = text;
    else if (name === "tp" && this.data.tp.some((tp) => String(tp) === text)) this.tp = Number(text);
    else if (name === "engine" && this.data.engines.includes(text)) this.engine = text;
    else if (name === "dtype" && Object.hasOwn(this.data.precisions, text)) this.dtype = text;
    else if (name === "x" && Object.hasOwn(AXES, text)) this.x = text;
    else if (name === "y" && FIGURES.some(({ key, of }) => of && key === text)) this.y = text;
    else return false;
    return true;
  }

  write() {
    const found = new URLSearchParams({ models: [...this.models].join(",") });
    for (const { name } of this.data.variables) found.set(name, this.values[name]);
    for (const name of ["dtype", "device", "tp", "engine", "x", "y"]) if (this[name] !== "") found.set(name, this[name]);
    const hash = `#${found}`;
    if (location.hash !== hash) history.replaceState(null, "", hash);
  }

  // What every model is asked for; ``more`` are other sizes.
  ask(more = {}) {
    const { precisions, products } = this.data;
    const bytes = this.dtype && Object.fromEntries(Object.entries(precisions[this.dtype]).map(([name, text]) => [name, exactNumber(text)]));
    return { sizes: { ...this.values, ...more }, bytes: bytes || undefined, products: this.dtype ? products[this.dtype] : "bfloat16", device: this.device, tp: this.tp, engine: this.engine };
  }

  get phase() {
    return phaseOf(this.values);
  }
}

class Picker {
  constructor(state, models) {
    this.state = state;
    this.rows = models.map((model) => {
      const box = made("input", { type: "checkbox", value: model.data.key });
      const row = made("label", { title: `${model.data.class_name}, ${model.data.sources}` }, box, " ", model.data.name);
      box.addEventListener("change", () => this.choose(model.data.key, box.checked));
      return { model, box, row };
    });
    element("models").append(...this.rows.map(({ row }) => row));
    element("search").addEventListener("input", () => this.filter());
    element("none").addEventListener("click", () => this.put([]));
    element("shown").addEventListener("click", () => this.put(this.rows.filter(({ row }) => !row.hidden).map(({ model }) => model.data.key)));
  }

  choose(key, chosen) {
    if (chosen) this.state.models.add(key);
    else this.state.models.delete(key);
    this.state.changed();
  }

  put(keys) {
    this.state.models = new Set(keys);
    this.state.changed();
  }

  filter() {
    const wanted = element("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const { model, row } of this.rows) row.hidden = !wanted.every((word) => model.words.includes(word));
  }

  show() {
    for (const { model, box } of this.rows) box.checked = this.state.models.has(model.data.key);
  }
}

// A row for each figure, a column for each model: a click on a figure sorts the models by it.
class Figures {
  constructor(state) {
    this.state = state;
    this.sorted = { key: null, falling: false };
  }

  // Figures fall at first; a third time brings back the order in which the models were chosen.
  sort(key) {
    if (this.sorted.key !== key) this.sorted = { key, falling: true };
    else this.sorted = this.sorted.falling ? { key, falling: false } : { key: null, falling: false };
    this.state.changed();
  }

  ordered(found) {
    const chosen = FIGURES.find(({ key }) => key === this.sorted.key);
    if (!chosen) return found;
    const sign = this.sorted.falling ? -1 : 1;
    const known = (one) => (chosen.words ? chosen.words(one) : plainNumber(chosen, one));
    const before = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    return [...found].sort((a, b) => {
      const [one, other] = [known(a), known(b)];
      if (one === undefined || other === undefined) return (one === undefined) - (other === undefined);
      return sign * before(one, other);
    });
  }

  show(all) {
    const found = this.ordered(all);
    const focused = document.activeElement.dataset.sort;
    const head = made("tr", {}, made("td", {}), ...found.map((one) => this.head(one)));
    const rows = FIGURES.map((of) => made("tr", {}, this.name(of), ...found.map((one) => this.cell(of, one))));
    element("table").replaceChildren(made("thead", {}, head), made("tbody", {}, ...rows));
    if (focused) element("table").querySelector(`[data-sort="${focused}"]`).focus();
    element("scroll").hidden = found.length === 0;
    element("empty").hidden = found.length > 0;
  }

  head({ model: { data } }) {
    const place = [...this.state.models].indexOf(data.key);
    const mark = drawn("svg", { width: 22, height: 8, "aria-hidden": "true" }, drawn("line", { x1: 1, x2: 21, y1: 4, y2: 4, ...lineStyle(place) }));
    return made("th", { scope: "col", "data-model": data.key, title: `${data.class_name}, verified at ${data.points} points with ${data.sources}` }, mark, " ", data.name);
  }

  name({ key, title }) {
    const button = made("button", { type: "button", "data-sort": key }, title);
    button.addEventListener("click", () => this.sort(key));
    const direction = key !== this.sorted.key ? "none" : this.sorted.falling ? "descending" : "ascending";
    return made("th", { scope: "row", role: "rowheader", "aria-sort": direction }, button);
  }

  cell(of, found) {
    const value = of.value ? of.value(found) : undefined;
    const text = value !== undefined && this.state.exact ? grouped(value) : written(of, found);
    const cell = made("td", { class: "number", "data-figure": of.key, "data-of": found.model.data.key }, text || "–");
    if (value !== undefined) {
      cell.title = grouped(value);
      cell.dataset.exact = value.toString();
    }
    return cell;
  }
}

// Sizes of an axis of the plot: those of the grid for what is predicted, else doublings from its first to its last.
function stopsOn(sizes, predicted) {
  if (predicted) return sizes;
  const found = [];
  for (let size = sizes[0]; size <= sizes.at(-1); size *= 2) found.push(size);
  return found;
}

function lines(state, chosen) {
  const of = FIGURES.find(({ key }) => key === state.y);
  const phase = state.phase === "prefill" ? "prefill" : "decode";
  const axes = state.data.axes[phase];
  const name = state.x === "batch_size" ? "batch_size" : phase === "prefill" ? "seq_len" : "cache_len";
  const stops = stopsOn(state.x === "batch_size" ? axes.batches : axes.lengths, Boolean(of.number));
  const text = of.written || ((value) => figure(BigInt(Math.round(value)), of.unit || ""));
  const found = chosen.map((model, place) => ({
    name: model.data.name,
    place,
    written: text,
    points: stops.flatMap((size) => {
      const one = model.at(state.ask({ [name]: BigInt(size) }));
      const y = plainNumber(of, one);
      return y > 0 ? [{ x: size, y, low: of.low ? of.low(one) : undefined, high: of.high ? of.high(one) : undefined }] : [];
    }),
  }));
  const unit = of.unit ? `, ${of.unit}` : of.key === "us" ? ", µs" : "";
  return [found.filter(({ points }) => points.length), { xTitle: name === "batch_size" ? "batch size" : name === "seq_len" ? "new tokens" : "tokens in the cache", yTitle: `${of.title}${unit}`, now: Number(state.values[name]) }];
}

function choices(state) {
  const choose = (what) => {
    Object.assign(state, what);
    state.changed();
  };
  const { data } = state;
  const words = Object.entries(data.precisions).map(([name, sizes]) => [name, `${name}: w ${sizes.w_bytes} B, a ${sizes.a_bytes} B`]);
  element("exact").addEventListener("change", (event) => choose({ exact: event.target.checked }));
  return [
    new Choice("dtype", [["", "as the checkpoint stores it"], ...words], () => state.dtype, (dtype) => choose({ dtype })),
    new Choice("device", data.devices.map(({ id, label }) => [id, label]), () => state.device, (device) => choose({ device })),
    new Choice("tp", data.tp.map((tp) => [String(tp), String(tp)]), () => String(state.tp), (tp) => choose({ tp: Number(tp) })),
    new Choice("engine", data.engines.map((name) => [name, name]), () => state.engine, (engine) => choose({ engine })),
    new Choice("y", FIGURES.filter(({ of }) => of).map(({ key, title }) => [key, title]), () => state.y, (y) => choose({ y })),
    new Choice("x", Object.entries(AXES), () => state.x, (x) => choose({ x })),
  ];
}

function phases(state) {
  const buttons = Object.entries(state.data.phases).map(([name, sizes]) => {
    const button = made("button", { type: "button", "data-phase": name }, name);
    button.addEventListener("click", () => state.set(sizes));
    return button;
  });
  element("phases").append(made("div", { class: "buttons" }, ...buttons));
  return { show: () => buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.phase === state.phase))) };
}

function showIgnored({ ignored }) {
  const box = element("ignored");
  box.hidden = ignored.length === 0;
  box.textContent = ignored.length ? `The address has what this page does not know, and leaves out: ${ignored.map(quoted).join(", ")}.` : "";
}

function showNotes(found) {
  const notes = found.flatMap(({ model, notes: own }) => own.map((note) => made("li", {}, made("strong", {}, model.data.name), `: ${note}`)));
  element("notes").replaceChildren(...notes);
  element("notes-title").hidden = element("notes").hidden = notes.length === 0;
}

function showPoint(state) {
  const { batch_size: batch, seq_len: fresh, cache_len: cached } = state.values;
  const label = state.data.devices.find(({ id }) => id === state.device).label;
  element("point").textContent = `${state.phase}, batch ${grouped(batch)}, ${grouped(fresh)} new tokens, ${grouped(cached)} in the cache, ${state.dtype || "weights as stored"}, ${state.tp === 1 ? "one" : `tp ${state.tp} of`} ${label}, ${state.engine}`;
}

// The link is chosen, so that it can be copied by hand where the browser gives no clipboard.
function copyLink() {
  const field = element("link");
  field.value = location.href;
  field.select();
  if (navigator.clipboard) navigator.clipboard.writeText(location.href).catch(() => {});
}

function themed(draw) {
  element("theme").addEventListener("change", (event) => {
    if (event.target.value) document.documentElement.dataset.theme = event.target.value;
    else delete document.documentElement.dataset.theme;
    draw();
  });
}

function begin() {
  const data = JSON.parse(element("data").textContent);
  const models = data.models.map((model) => new Compared(model));
  const byKey = new Map(models.map((model) => [model.data.key, model]));
  const state = new Comparison(data);
  const shown = [new Picker(state, models), ...choices(state), phases(state)];
  for (const variable of data.variables) {
    const field = new SliderField(state, variable);
    element("sizes").append(field.box);
    shown.push(field);
  }
  const figures = new Figures(state);
  const plot = new Plot(element("plot"));
  let waiting = 0;
  const draw = () => plot.show(...lines(state, [...state.models].map((key) => byKey.get(key))));
  const refresh = () => {
    waiting = 0;
    for (const one of shown) one.show();
    const found = [...state.models].map((key) => byKey.get(key).at(state.ask()));
    showPoint(state);
    showIgnored(state);
    figures.show(found);
    showNotes(found);
    state.write();
    element("link").value = location.href;
    draw();
  };
  state.listeners.push(() => {
    waiting = waiting || requestAnimationFrame(refresh);
  });
  element("controls").addEventListener("submit", (event) => event.preventDefault());
  element("reset").addEventListener("click", () => {
    state.start();
    state.changed();
  });
  element("share").addEventListener("click", copyLink);
  new ResizeObserver(() => element("plot").clientWidth !== plot.width && draw()).observe(element("plot"));
  window.addEventListener("hashchange", () => {
    state.start();
    state.readAddress(location.hash);
    state.changed();
  });
  themed(draw);
  refresh();
}

begin();
