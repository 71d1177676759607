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

const DIGITS = /^[0-9]{1,100}$/;
const RATIONAL = /^([0-9]{1,100})(?:\.([0-9]{1,100})|\/([0-9]{1,100}))?$/;

// 2, 0.5 or 17/32; null for any other text.
function exactNumber(text) {
  const [, above, places = "", below = "1"] = RATIONAL.exec(text) || [];
  return above === undefined ? NONE : quotient(BigInt(above + places), BigInt(below) * 10n ** BigInt(places.length));
}

class State {
  constructor(data) {
    this.data = data;
    this.variables = new Map(data.variables.map((variable) => [variable.name, variable]));
    this.listeners = [];
    this.start();
    this.read(location.hash);
  }

  start() {
    this.values = {};
    for (const [name, variable] of this.variables) this.values[name] = exactNumber(variable.value);
    this.touched = new Set();
    this.metric = "flops";
    this.device = this.data.device;
    this.exact = false;
    this.chosen = 0;
  }

  // The number that a text is for this variable, or null.
  parsed(name, text) {
    const trimmed = text.trim();
    if (this.variables.get(name).rational) {
      const size = exactNumber(trimmed);
      return size !== NONE && aboveOf(size) > 0n ? size : null;
    }
    if (!DIGITS.test(trimmed)) return null;
    const value = BigInt(trimmed);
    return value >= BigInt(this.variables.get(name).least) ? value : null;
  }

  set(values) {
    for (const [name, value] of Object.entries(values)) {
      if (!this.variables.has(name)) continue;
      this.values[name] = exactNumber(String(value));
      this.touched.add(name);
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

  read(hash) {
    for (const [name, text] of new URLSearchParams(hash.replace(/^#/, ""))) {
      if (this.variables.has(name)) {
        const value = this.parsed(name, text);
        if (value !== null) {
          this.values[name] = value;
          this.touched.add(name);
        }
      } else if (name === "by" && text in METRICS) this.metric = text;
      else if (name === "device" && this.data.devices.some((device) => device.name === text)) this.device = text;
    }
    this.follow();
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
    const hash = found.size ? `#${found}` : "";
    if (location.hash !== hash) history.replaceState(null, "", hash || location.pathname);
  }

  changed() {
    for (const listener of this.listeners) listener();
  }
}
