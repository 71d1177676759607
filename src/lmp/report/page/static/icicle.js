// The icicle: every cost once, as boxes whose places are shares of the width, so that they survive any resize.
// A view is the part of the width that is seen: the wheel and the keys change it, a redraw keeps it.

const ROW = 26; // pixels
const LEAST = 1 / 2000; // of the view: narrower boxes are not drawn, and counted below
const DEEPEST = 1e-9; // of the whole: the narrowest view
const PAUSE = 400; // milliseconds after which a wheel that scrolled the page may zoom
const WHOLE = { left: 0, right: 1 };

class Icicle {
  constructor(state, model) {
    this.state = state;
    this.model = model;
    this.box = element("icicle");
    this.trail = element("icicle-path");
    this.view = WHOLE;
    this.zoomed = 0; // the part whose extent the view is; null after the wheel
    this.at = 0; // the part that the keyboard is at
    this.scrolled = -Infinity;
    this.legend();
    this.listen();
  }

  legend() {
    for (const { key, title } of [...KINDS, OTHER]) {
      if (!this.model.nodes.some((node) => node.costs && node.formulas.some((text) => text !== "0") && kindOf(node.category).title === title)) continue;
      element("legend").append(made("li", {}, made("span", { class: `swatch kind-${key}` }), title));
    }
  }

  listen() {
    const partOf = (event) => {
      const cell = event.target.closest("[data-part]");
      return cell && Number(cell.dataset.part);
    };
    this.box.addEventListener("click", (event) => partOf(event) !== null && this.enter(partOf(event)));
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.box.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    window.addEventListener("wheel", (event) => {
      if (!this.box.contains(event.target)) this.scrolled = event.timeStamp;
    }, { passive: true });
    for (const name of ["mouseover", "focusin"]) this.box.addEventListener(name, (event) => partOf(event) !== null && this.tell(partOf(event)));
    this.trail.addEventListener("click", (event) => partOf(event) !== null && this.zoom(partOf(event)));
    element("icicle-out").addEventListener("click", () => this.out());
  }

  show(result) {
    const parameters = this.state.metric === "parameters";
    if (this.counting !== parameters) [this.counting, this.at, this.zoomed, this.view] = [parameters, 0, 0, WHOLE];
    this.parts = new Map((parameters ? this.parameters() : this.costs(result)).map((part) => [part.id, part]));
    const root = this.parts.get(0);
    this.whole = root ? root.all : 0n;
    this.note(result);
    element("legend").hidden = parameters;
    element("icicle-tools").hidden = this.whole === 0n;
    element("icicle-part").textContent = "";
    if (this.whole === 0n) {
      this.box.replaceChildren();
      this.box.style.height = "";
      return;
    }
    this.place();
    if (this.zoomed !== null) this.zoomed = this.parts.has(this.zoomed) ? this.zoomed : 0;
    if (this.zoomed !== null) this.view = this.extent(this.zoomed);
    if (!this.parts.has(this.at)) this.at = 0;
    this.draw();
  }

  // Left and right edge of every part as shares of the whole, and the rows from left to right.
  place() {
    this.rows = [];
    const heavy = this.state.order === "heavy";
    const inside = new Map([...this.parts.keys()].map((id) => [id, []]));
    for (const part of this.parts.values()) if (part.up !== null) inside.get(part.up).push(part);
    const put = (part, start, depth) => {
      part.left = float(start, this.whole);
      part.right = float(added(start, part.all), this.whole);
      part.depth = depth;
      part.inside = inside.get(part.id);
      if (heavy) part.inside.sort((a, b) => compared(b.all, a.all) || a.id - b.id);
      (this.rows[depth] = this.rows[depth] || []).push(part.id);
      for (const child of part.inside) {
        put(child, start, depth + 1);
        start = added(start, child.all);
      }
    };
    put(this.parts.get(0), 0n, 0);
  }

  extent(id) {
    const { left, right } = this.parts.get(id);
    return right - left > DEEPEST ? { left, right } : this.within((left + right) / 2 - DEEPEST / 2, DEEPEST);
  }

  // A view of this width, moved into the whole.
  within(left, width) {
    width = Math.min(1, Math.max(DEEPEST, width));
    left = Math.min(1 - width, Math.max(0, left));
    return { left, right: left + width };
  }

  draw() {
    const focused = this.box.contains(document.activeElement);
    const { left, right } = this.view;
    const width = right - left;
    const cells = [];
    let hidden = 0;
    for (const part of this.parts.values()) {
      const from = Math.max(part.left, left);
      const to = Math.min(part.right, right);
      if (to <= from) continue;
      if ((to - from) / width < LEAST && part.id !== this.at) hidden += 1;
      else cells.push(this.cell(part, (from - left) / width, (to - from) / width));
    }
    this.box.replaceChildren(...cells);
    this.box.style.height = `${this.rows.length * ROW}px`;
    if (focused) this.cellOf(this.at).focus({ preventScroll: true });
    this.path();
    element("icicle-hidden").textContent = hidden ? `Too narrow to be drawn: ${grouped(BigInt(hidden))} ${hidden === 1 ? "part" : "parts"}. Zoom in, or see the table.` : "";
  }

  cell(part, left, width) {
    const share = percent(part.all, this.whole);
    const cell = made("div", { role: "treeitem", class: `cell kind-${part.kind}`, "data-part": String(part.id), "aria-level": String(part.depth + 1), "aria-label": `${part.name}, ${part.text}, ${share}`, title: `${part.name}\n${part.about}${part.text}, ${share} of all` }, `${part.name} ${share}`);
    cell.tabIndex = part.id === this.at ? 0 : -1;
    cell.dataset.all = part.all.toString();
    if (part.leaf) cell.dataset.leaf = "";
    cell.style.left = `${left * 100}%`;
    cell.style.width = `${width * 100}%`;
    cell.style.top = `${part.depth * ROW}px`;
    return cell;
  }

  cellOf(id) {
    return this.box.querySelector(`[data-part="${id}"]`) || this.box.firstChild;
  }

  // The innermost part that fills the view.
  container() {
    let found = this.parts.get(0);
    for (;;) {
      const inner = found.inside.find(({ left, right }) => left <= this.view.left && right >= this.view.right);
      if (!inner || (this.zoomed !== null && found.id === this.zoomed)) return found;
      found = inner;
    }
  }

  path() {
    const above = [];
    for (let part = this.container(); part; part = part.up === null ? null : this.parts.get(part.up)) above.unshift(part);
    this.trail.replaceChildren(...above.map(({ id, name }) => made("button", { type: "button", "data-part": String(id) }, name)));
    element("icicle-out").disabled = this.isWhole();
  }

  isWhole() {
    return this.view.left <= 0 && this.view.right >= 1;
  }

  tell(id) {
    const { name, about, text, all } = this.parts.get(id);
    element("icicle-part").textContent = [name, ...about.split("\n").filter(Boolean), text, `${percent(all, this.whole)} of all`].join(" · ");
  }

  zoom(id) {
    this.zoomed = id;
    this.view = this.extent(id);
    this.draw();
  }

  // To the part around the one that is seen.
  out() {
    const part = this.container();
    const { left, right } = this.extent(part.id);
    const whole = left >= this.view.left && right <= this.view.right;
    this.zoom(whole && part.up !== null ? part.up : part.id);
  }

  enter(id) {
    this.at = id;
    this.zoom(id);
    this.cellOf(id).focus({ preventScroll: true });
    if (this.clicked && !this.counting) this.clicked(id);
  }

  // Goes to a part, and to the part around it where it is out of sight or too narrow.
  focus(id) {
    if (id === undefined) return;
    const part = this.parts.get(id);
    this.at = id;
    const seen = Math.min(part.right, this.view.right) - Math.max(part.left, this.view.left);
    if (seen < 0.01 * (this.view.right - this.view.left)) {
      this.zoomed = null;
      const around = part.up === null ? WHOLE : this.extent(part.up);
      const width = Math.min(around.right - around.left, Math.max(DEEPEST, (part.right - part.left) * 50));
      this.view = this.within((part.left + part.right - width) / 2, width);
    }
    this.draw();
    this.cellOf(id).focus({ preventScroll: true });
    this.tell(id);
  }

  scale(factor, middle) {
    const { left, right } = this.view;
    const width = (right - left) * factor;
    this.zoomed = null;
    this.view = width >= 1 ? WHOLE : this.within(left + (right - left) * middle - width * middle, width);
    if (this.isWhole()) this.zoomed = 0;
    this.draw();
  }

  // Zooms at the pointer; with Shift, or sideways, moves. A wheel that is scrolling the page goes on doing so.
  wheel(event) {
    const lines = event.deltaMode === 0 ? 1 : 16;
    const sideways = event.shiftKey ? event.deltaX || event.deltaY : Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : 0;
    const scrolls = event.timeStamp - this.scrolled < PAUSE || (this.isWhole() && (sideways !== 0 || event.deltaY > 0));
    if (scrolls || this.whole === 0n) {
      this.scrolled = event.timeStamp;
      return;
    }
    event.preventDefault();
    const { left, width } = this.box.getBoundingClientRect();
    if (sideways) {
      const seen = this.view.right - this.view.left;
      this.zoomed = null;
      this.view = this.within(this.view.left + (seen * sideways * lines) / width, seen);
      this.draw();
    } else this.scale(Math.exp(Math.max(-200, Math.min(200, event.deltaY * lines)) / 400), (event.clientX - left) / width);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || this.whole === 0n) return;
    const part = this.parts.get(this.at);
    const row = this.rows[part.depth];
    const place = row.indexOf(part.id);
    const goes = {
      ArrowUp: () => this.focus(part.up === null ? undefined : part.up),
      ArrowDown: () => part.inside.length && this.focus(part.inside[0].id),
      ArrowLeft: () => this.focus(row[place - 1]),
      ArrowRight: () => this.focus(row[place + 1]),
      Enter: () => this.enter(part.id),
      " ": () => this.enter(part.id),
      Home: () => {
        this.at = 0;
        this.zoom(0);
      },
      "+": () => this.scale(0.5, this.middle(part)),
      "-": () => this.scale(2, this.middle(part)),
    };
    if (event.key === "Escape" && !this.isWhole()) this.back();
    else if (event.key in goes) goes[event.key]();
    else return;
    event.preventDefault();
  }

  // Out, with the keyboard at a part that is in sight.
  back() {
    this.at = this.container().id;
    this.out();
    this.cellOf(this.at).focus({ preventScroll: true });
  }

  // Where the middle of a part is in the view.
  middle(part) {
    const { left, right } = this.view;
    return Math.min(1, Math.max(0, ((part.left + part.right) / 2 - left) / (right - left)));
  }

  note(result) {
    const metric = METRICS[this.state.metric];
    const changed = this.state.data.variables.some(({ name, slider, value }) => !slider && !name.endsWith("_bytes") && this.state.changedFrom(name, value));
    const notes = [];
    if (this.whole === 0n) notes.push(`Nothing to show: the ${metric ? metric.title : "parameters"} are 0 at these values.`);
    if (!metric) notes.push(`Parameters that each module holds itself${changed ? "; of the analysis's config, NOT of the values that you changed" : ""}.`);
    else if (this.state.metric === "bound") notes.push(`Each kernel's bound on ${result.device.name}, one after the other: peak rates, not a measurement.`);
    if (this.whole !== 0n) notes.push("Click or Enter zooms in and chooses a part below; the wheel zooms; arrow keys move; Escape zooms out.");
    element("icicle-note").textContent = notes.join(" ");
  }

  // A kernel has its own cost, a module that of what is in it: so every cost is in the picture once.
  costs(result) {
    const metric = METRICS[this.state.metric];
    const found = [];
    this.model.nodes.forEach((node, index) => {
      const all = metric.of(result.total(index));
      if (compared(all, 0n) <= 0) return;
      const kernel = this.model.isKernel(index);
      const runs = result.runs(index);
      const times = result.costs[index].times;
      const about = [node.class === undefined ? node.category : this.model.data.classes[node.class].name, node.path, runs === 1n ? "" : `${grouped(runs)} runs`];
      found.push({
        id: index,
        up: index ? node.up : null,
        name: times === 1n ? node.name : `${node.name} ×${grouped(times)}`,
        leaf: kernel,
        all,
        about: about.filter(Boolean).map((text) => `${text}\n`).join(""),
        text: this.state.metric === "bound" ? seconds(all, result.device.denominator) : figure(all, metric.unit),
        kind: kernel ? kindOf(node.category).key : "module",
      });
    });
    return found;
  }

  // What a module holds itself is the part of its box that has no box below.
  parameters() {
    const { parameters } = this.model.data;
    const all = parameters.map(({ own }) => BigInt(own));
    for (let index = all.length - 1; index > 0; index--) all[parameters[index].up] += all[index];
    const found = parameters.map(({ up, name, path }, index) => ({
      id: index,
      up: up < 0 ? null : up,
      name,
      leaf: all[index] === BigInt(parameters[index].own),
      all: all[index],
      about: path ? `${path}\n` : "",
      text: `${grouped(all[index])} parameters`,
      kind: BigInt(parameters[index].own) ? "matmul" : "module",
    }));
    return found.filter((part) => part.all > 0n);
  }
}
