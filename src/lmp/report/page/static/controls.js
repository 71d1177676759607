// Sliders, numbers and choices. A field says in words why a text is refused; the figures keep the last good value.

// 0 where that is allowed, then 1, 2, 3, 4, 6, 8, 12, … up to the slider's end.
function stopsOf({ slider, least }) {
  const found = least === 0 ? [0n] : [];
  for (let power = 1n; power <= BigInt(slider); power *= 2n) {
    found.push(power);
    if (power > 1n && (power * 3n) / 2n <= BigInt(slider)) found.push((power * 3n) / 2n);
  }
  return found;
}

// The stop that a value is nearest to from below.
const stopBefore = (stops, value) => Math.max(0, stops.findLastIndex((stop) => stop <= value));

class NumberField {
  constructor(state, variable) {
    this.state = state;
    this.variable = variable;
    const id = `set-${variable.name}`;
    // Text, because a field for numbers gives no text that it refuses itself, and takes no 8k.
    this.input = made("input", { id, type: "text", inputmode: variable.rational || variable.count ? "text" : "numeric", spellcheck: "false" });
    this.input.setAttribute("aria-describedby", `${id}-wrong`);
    this.wrong = made("span", { id: `${id}-wrong`, class: "wrong", "aria-live": "polite" });
    const name = variable.title === variable.name ? [] : [" ", made("code", {}, variable.name)];
    const label = made("label", { for: id, title: variable.origin }, variable.title === variable.name ? made("code", {}, variable.name) : variable.title, ...name);
    this.box = made("div", { class: "field" }, label, this.input, this.wrong);
    if (variable.not_given) {
      this.note = made("span", { class: "note" }, "not in the analysis: put in here, set it");
      this.box.append(this.note);
    }
    this.input.addEventListener("input", () => this.typed());
  }

  typed() {
    const { name } = this.variable;
    const { value, why } = this.state.read(name, this.input.value);
    if (why === undefined) return this.state.set({ [name]: value });
    this.state.refuse(name, this.input.value);
    this.show();
  }

  shows(value) {
    const shown = this.state.read(this.variable.name, this.input.value).value;
    return shown !== undefined && compared(shown, value) === 0;
  }

  show() {
    const { name } = this.variable;
    const text = this.state.refused.get(name);
    const refused = text !== undefined;
    if (refused) this.input.value = text;
    else if (!this.shows(this.state.values[name])) this.input.value = this.state.values[name].toString();
    const wrong = refused ? this.why(text) : "";
    if (this.wrong.textContent !== wrong) this.wrong.textContent = wrong;
    if (refused) this.input.setAttribute("aria-invalid", "true");
    else this.input.removeAttribute("aria-invalid");
    if (refused && this.box.closest("details")) this.box.closest("details").open = true;
    if (this.note) this.note.hidden = this.state.touched.has(name);
  }

  why(text) {
    const { rational, count, least, name } = this.variable;
    const wanted = rational ? "a positive number of bytes, as 2, 0.5 or 17/32" : `a whole number of at least ${least}${count ? ", as 2048, 8k or 1M" : ""}`;
    return `${this.state.read(name, text).why}: give ${wanted}. The figures keep ${grouped(this.state.values[name])}.`;
  }
}

class SliderField extends NumberField {
  constructor(state, variable) {
    super(state, variable);
    this.stops = stopsOf(variable);
    this.slider = made("input", { type: "range", id: `slide-${variable.name}`, min: "0", max: String(this.stops.length - 1), step: "1" });
    this.slider.setAttribute("aria-label", variable.title);
    this.slider.addEventListener("input", () => state.set({ [variable.name]: this.stops[Number(this.slider.value)] }));
    this.box.classList.add("sliding");
    this.input.before(this.slider);
  }

  show() {
    super.show();
    const value = this.state.values[this.variable.name];
    this.slider.value = String(stopBefore(this.stops, value));
    this.slider.setAttribute("aria-valuetext", grouped(value));
  }
}

class Choice {
  constructor(id, options, chosen, choose) {
    this.select = element(id);
    for (const [value, title] of options) this.select.append(made("option", { value }, title));
    this.chosen = chosen;
    this.select.addEventListener("change", () => choose(this.select.value));
  }

  show() {
    this.select.value = this.chosen();
  }
}

class Controls {
  constructor(state) {
    this.state = state;
    this.shown = [];
    for (const variable of state.data.variables) this.place(variable);
    this.phases();
    this.precision();
    this.shown.push(
      new Choice("metric", Object.entries(METRICS).map(([key, { title }]) => [key, title]).concat(state.data.parameters.length ? [["parameters", "parameters"]] : []), () => state.metric, (value) => this.choose({ metric: value })),
      new Choice("order", [["source", "in order of execution"], ["heavy", "heaviest left"]], () => state.order, (value) => this.choose({ order: value })),
      new Choice("device", state.data.devices.map(({ name }) => [name, name]), () => state.device, (value) => this.choose({ device: value })),
    );
    const { engines, tp, eager } = state.data.on_device;
    for (const id of ["tp", "engine"]) element(id).parentElement.hidden = eager === undefined;
    if (eager !== undefined) this.shown.push(
      new Choice("tp", tp.map((gpus) => [String(gpus), String(gpus)]), () => String(state.tp), (value) => this.choose({ tp: Number(value) })),
      new Choice("engine", engines.map((name) => [name, name]), () => state.engine, (value) => this.choose({ engine: value })),
    );
    element("reset").addEventListener("click", () => {
      state.start();
      state.changed();
    });
    element("exact").addEventListener("change", (event) => this.choose({ exact: event.target.checked }));
    element("controls").addEventListener("submit", (event) => event.preventDefault());
    element("config-values").hidden = element("config-values").children.length === 1;
  }

  choose(what) {
    Object.assign(this.state, what);
    this.state.changed();
  }

  place(variable) {
    const isBytes = variable.name.endsWith("_bytes") && this.state.data.precisions.bfloat16[variable.name] !== undefined;
    const field = variable.slider ? new SliderField(this.state, variable) : new NumberField(this.state, variable);
    element(variable.slider ? "sizes" : isBytes ? "precision" : "config-values").append(field.box);
    this.shown.push(field);
    if (variable.not_given) element("config-values").open = true;
  }

  phases() {
    const { phases } = this.state.data;
    const buttons = Object.entries(phases).map(([name, sizes]) => {
      const button = made("button", { type: "button", "data-phase": name }, name);
      button.addEventListener("click", () => this.state.set(this.sizesOf(name, sizes)));
      return button;
    });
    if (!buttons.length) return;
    element("phases").hidden = false;
    element("phases").append(made("div", { class: "buttons" }, ...buttons));
    this.shown.push({ show: () => buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.phase === phaseOf(this.state.values)))) });
  }

  // Sizes that fit the phase already stay as they are.
  sizesOf(name, sizes) {
    const { seq_len, cache_len } = this.state.values;
    const found = {};
    if (name === "decode" ? seq_len !== 1n : seq_len === 1n || phaseOf(this.state.values) === name) found.seq_len = sizes.seq_len;
    if (name === "prefill" ? cache_len !== 0n : cache_len === 0n) found.cache_len = sizes.cache_len;
    return found;
  }

  precision() {
    const { precisions } = this.state.data;
    const select = made("select", { id: "set-precision" });
    for (const [name, sizes] of Object.entries(precisions)) {
      select.append(made("option", { value: name }, `${name}: w ${sizes.w_bytes} B, a ${sizes.a_bytes} B`));
    }
    select.append(made("option", { value: "" }, "as set below"));
    element("precision").querySelector("legend").after(made("div", { class: "field" }, made("label", { for: "set-precision" }, "dtype"), select));
    select.addEventListener("change", () => {
      if (!select.value) return;
      this.state.dtype = select.value;
      this.state.set(precisions[select.value]);
    });
    this.shown.push({ show: () => { select.value = this.state.word; } });
  }

  show() {
    for (const field of this.shown) field.show();
  }
}
