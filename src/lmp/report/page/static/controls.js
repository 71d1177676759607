// Sliders, numbers and choices. Each says in words what is wrong with what was typed; the figures stay as they were.

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
    const kind = variable.rational ? { type: "text", inputmode: "decimal" } : { type: "number", step: "1", min: String(variable.least), inputmode: "numeric" };
    this.input = made("input", { id, ...kind });
    this.input.setAttribute("aria-describedby", `${id}-wrong`);
    this.wrong = made("span", { id: `${id}-wrong`, class: "wrong", role: "alert" });
    const name = variable.title === variable.name ? [] : [" ", made("code", {}, variable.name)];
    const label = made("label", { for: id, title: variable.origin }, variable.title === variable.name ? made("code", {}, variable.name) : variable.title, ...name);
    this.box = made("div", { class: "field" }, label, this.input, this.wrong);
    if (variable.not_given) {
      this.note = made("span", { class: "note" }, "not in the analysis: put in here, set it");
      this.box.append(this.note);
    }
    this.input.addEventListener("input", () => this.typed());
    this.input.addEventListener("change", () => this.wrong.textContent && this.typed());
  }

  typed() {
    const value = this.state.parsed(this.variable.name, this.input.value);
    if (value === null) {
      this.wrong.textContent = this.variable.rational
        ? "give a positive number of bytes, as 2, 0.5 or 17/32"
        : `give a whole number of at least ${this.variable.least}, of at most 100 digits`;
      this.input.setAttribute("aria-invalid", "true");
      return;
    }
    this.state.set({ [this.variable.name]: value });
  }

  shows(value) {
    const shown = this.state.parsed(this.variable.name, this.input.value);
    return shown !== null && compared(shown, value) === 0;
  }

  show() {
    const value = this.state.values[this.variable.name];
    if (!this.shows(value)) this.input.value = value.toString();
    this.wrong.textContent = "";
    this.input.removeAttribute("aria-invalid");
    if (this.note) this.note.hidden = this.state.touched.has(this.variable.name);
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
      new Choice("device", state.data.devices.map(({ name }) => [name, name]), () => state.device, (value) => this.choose({ device: value })),
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
      select.append(made("option", { value: name }, `${name}: weights ${sizes.w_bytes} B, activations ${sizes.a_bytes} B`));
    }
    select.append(made("option", { value: "" }, "as set below"));
    element("precision").querySelector("legend").after(made("div", { class: "field" }, made("label", { for: "set-precision" }, "dtype"), select));
    select.addEventListener("change", () => select.value && this.state.set(precisions[select.value]));
    this.shown.push({ show: () => {
      const fits = (name) => Object.entries(precisions[name] || {}).every(([key, value]) => !this.state.changedFrom(key, value));
      if (select.value && fits(select.value) && this.state.touched.has("w_bytes")) return;
      select.value = ["bfloat16", ...Object.keys(precisions)].find(fits) || "";
    } });
  }

  show() {
    for (const field of this.shown) field.show();
  }
}

function phaseOf({ seq_len, cache_len }) {
  if (cache_len === undefined) return "";
  if (cache_len === 0n) return "prefill";
  return seq_len === 1n ? "decode" : "chunked prefill";
}
