// What the reader has chosen. It stands in the address behind the #, so that a link leads to the same numbers.

const element = (id) => document.getElementById(id);

function made(tag, attributes = {}, ...inside) {
  const found = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name in found && typeof value !== "string") found[name] = value;
    else found.setAttribute(name, value);
  }
  found.append(...inside);
  return found;
}

// Numbers as `lmp evaluate --set` reads them, but for their length.
const WHOLE_NUMBER = /^\+?[0-9]+(_[0-9]+)*$/;
const COUNT = /^\+?([0-9]+(?:_[0-9]+)*)(?:\.([0-9]+))?([kKmM])$/;
const RATIONAL = /^\+?([0-9]+(?:_[0-9]+)*)(?:\.([0-9]+)|\/([0-9]+(?:_[0-9]+)*))?$/;
const UNITS = { k: 1n << 10n, m: 1n << 20n };
const MOST_DIGITS = 100;

const integer = (digits) => BigInt(digits.replaceAll("_", ""));

// 2, 0.5 or 17/32; null for any other text.
function exactNumber(text) {
  const [, above, places = "", below = "1"] = RATIONAL.exec(text) || [];
  return above === undefined ? NONE : quotient(integer(above + places), integer(below) * 10n ** BigInt(places.length));
}

// A number with a unit: 8k is 8,192 and 1.5k is 1,536; null for any other text.
function countOf(text) {
  const [, above, places = "", unit] = COUNT.exec(text) || [];
  return unit === undefined ? NONE : quotient(integer(above + places) * UNITS[unit.toLowerCase()], 10n ** BigInt(places.length));
}

const quoted = (text) => `“${text.length > 24 ? `${text.slice(0, 23)}…` : text}”`;

const ORDERS = ["source", "heavy"]; // of the icicle's boxes
const LISTS = ["cost", "tree"]; // of the table's rows

class State {
  constructor(data) {
    this.data = data;
    this.variables = new Map(data.variables.map((variable) => [variable.name, variable]));
    this.listeners = [];
    this.start();
    this.readAddress(location.hash);
  }

  start() {
    this.values = {};
    for (const [name, variable] of this.variables) this.values[name] = exactNumber(variable.value);
    // A variable that follows another one and starts elsewhere was given.
    this.touched = new Set(this.data.variables.filter(({ name, follows }) => follows && compared(this.values[name], this.values[follows]) !== 0).map(({ name }) => name));
    this.refused = new Map();
    this.ignored = [];
    this.order = "source";
    this.list = "cost";
    this.metric = "flops";
    this.device = this.data.device;
    this.tp = this.data.on_device.start || 1;
    this.engine = (this.data.on_device.engines || [""])[0];
    this.dtype = "";
    this.exact = false;
    this.chosen = 0;
  }

  // { value } of a text for this variable, or { why } it is refused.
  read(name, written) {
    const text = written.trim();
    const variable = this.variables.get(name);
    if (text === "") return { why: "The field is empty" };
    if ((text.match(/[0-9]/g) || []).length > MOST_DIGITS) return { why: `It has more than ${MOST_DIGITS} digits` };
    if (variable.rational) return this.readSize(text);
    const value = WHOLE_NUMBER.test(text) ? integer(text) : variable.count ? countOf(text) : NONE;
    if (value === NONE || !isWhole(value)) return { why: /^-[0-9]+$/.test(text) ? `${quoted(text)} is below ${variable.least}` : `${quoted(text)} is not a whole number` };
    return value < BigInt(variable.least) ? { why: `${quoted(text)} is below ${variable.least}` } : { value };
  }

  readSize(text) {
    const value = exactNumber(text);
    if (value !== NONE) return aboveOf(value) > 0n ? { value } : { why: "An element takes more than 0 bytes" };
    return { why: /^[0-9]+\/0+$/.test(text) ? `${quoted(text)} divides by 0` : `${quoted(text)} is not a number` };
  }

  // What was typed and cannot be used stands beside its field until the value is set; the figures keep the last one.
  refuse(name, text) {
    this.refused.set(name, text);
  }

  set(values) {
    for (const [name, value] of Object.entries(values)) {
      if (!this.variables.has(name)) continue;
      this.values[name] = typeof value === "object" ? value : exactNumber(String(value));
      this.touched.add(name);
      this.refused.delete(name);
    }
    this.follow();
    this.changed();
  }

  // A variable that has another one's value until it is set.
  follow() {
    for (const [name, { follows }] of this.variables) {
      if (follows && !this.touched.has(name)) this.values[name] = this.values[follows];
    }
  }

  readAddress(hash) {
    for (const [name, text] of new URLSearchParams(hash.replace(/^#/, ""))) {
      if (this.variables.has(name)) {
        const { value, why } = this.read(name, text);
        if (why) this.refuse(name, text);
        else {
          this.values[name] = value;
          this.touched.add(name);
        }
      } else if (!this.readChoice(name, text)) this.ignored.push(`${name}=${text}`);
    }
    this.follow();
  }

  readChoice(name, text) {
    if (name === "by" && (Object.hasOwn(METRICS, text) || (text === "parameters" && this.data.parameters.length))) this.metric = text;
    else if (name === "device" && this.data.devices.some((device) => device.name === text)) this.device = text;
    else if (name === "tp" && (this.data.on_device.tp || []).some((tp) => String(tp) === text)) this.tp = Number(text);
    else if (name === "engine" && (this.data.on_device.engines || []).includes(text)) this.engine = text;
    else if (name === "dtype" && Object.hasOwn(this.data.precisions, text)) this.dtype = text;
    else if (name === "order" && ORDERS.includes(text)) this.order = text;
    else if (name === "list" && LISTS.includes(text)) this.list = text;
    else return false;
    return true;
  }

  // The dtype words whose bytes are those that are set, the usual one first.
  get fitting() {
    const { precisions } = this.data;
    const fits = (name) => Object.entries(precisions[name]).every(([key, value]) => !this.changedFrom(key, value));
    return ["bfloat16", ...Object.keys(precisions).filter((name) => name !== "bfloat16")].filter(fits);
  }

  // The word that was chosen, as long as its bytes are set; else the first that fits, or none.
  get word() {
    const { fitting } = this;
    return fitting.includes(this.dtype) ? this.dtype : fitting[0] || "";
  }

  // Values of the config that are not those of the analysis.
  get reconfigured() {
    return this.data.variables.filter(({ name, slider, value }) => !slider && !name.endsWith("_bytes") && this.changedFrom(name, value)).map(({ name }) => name);
  }

  // What the device is asked for.
  get ask() {
    const { id } = this.data.devices.find(({ name }) => name === this.device);
    return { values: this.values, products: this.word ? this.data.products[this.word] : "bfloat16", device: id, tp: this.tp, changed: this.reconfigured };
  }

  changedFrom(name, text) {
    return compared(this.values[name], exactNumber(text)) !== 0;
  }

  write() {
    const found = new URLSearchParams();
    for (const [name, variable] of this.variables) {
      const differs = variable.follows ? this.touched.has(name) : this.changedFrom(name, variable.value);
      if (differs) found.set(name, this.values[name]);
    }
    if (this.metric !== "flops") found.set("by", this.metric);
    if (this.device !== this.data.device) found.set("device", this.device);
    if (this.tp !== (this.data.on_device.start || 1)) found.set("tp", this.tp);
    if (this.data.on_device.engines && this.engine !== this.data.on_device.engines[0]) found.set("engine", this.engine);
    if (this.dtype && this.word !== this.fitting[0]) found.set("dtype", this.dtype);
    if (this.order !== ORDERS[0]) found.set("order", this.order);
    if (this.list !== LISTS[0]) found.set("list", this.list);
    const hash = found.size ? `#${found}` : "";
    if (location.hash !== hash) history.replaceState(null, "", hash || location.pathname);
  }

  changed() {
    for (const listener of this.listeners) listener();
  }
}
