// The tree as a table that folds, sorts and is searched. Rows are made once; new values change their text.

const COLUMNS = [
  { key: "path", title: "path", text: true },
  { key: "share", title: "share", width: 74 },
  { key: "flops", title: "FLOPs", width: 78 },
  { key: "read", title: "read, B", width: 80 },
  { key: "write", title: "written, B", width: 98 },
  { key: "intensity", title: "FLOPs/B", width: 88 },
  { key: "repeat", title: "repeat", width: 68 },
  { key: "class", title: "class or kind", text: true, width: 112 },
  { key: "line", title: "line", text: true, width: 112 },
];
const OPEN_AT_FIRST = 3; // levels

const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

const KEPT = 2; // parts at the end of a path that stay as long as there is room for them

// A path that loses its middle where it is too long: the first half is cut at its end. Its title is the whole.
function cutInTheMiddle(path) {
  const parts = path.split(".");
  const end = parts.slice(-KEPT).join(".");
  const start = path.slice(0, path.length - end.length);
  return made("span", { class: "cut", title: path }, made("span", { class: "cut-start" }, start), made("span", { class: "cut-end" }, end));
}

class Row {
  constructor(table, index) {
    this.index = index;
    this.node = table.model.nodes[index];
    const { model } = table;
    const { node } = this;
    this.kernel = model.isKernel(index);
    this.inside = model.inside[index];
    this.level = node.up < 0 ? 1 : table.rows[node.up].level + 1;
    this.open = !node.own && (this.level < OPEN_AT_FIRST || (node.up >= 0 && model.inside[node.up].length === 1 && this.level <= OPEN_AT_FIRST));
    this.class = node.own ? "" : this.kernel ? node.category : model.data.classes[node.class].name;
    const label = node.file === undefined ? "" : model.data.labels[node.file];
    this.file = label.split("/").pop();
    this.place = label && `${label}:${node.line}`;
    const words = node.own ? [] : [node.name, node.path, this.class, node.category || "", this.kernel ? model.data.classes[node.in].path : model.data.classes[node.class].path, this.place, node.code || ""];
    this.words = words.join("\n").toLowerCase();
    this.build(table);
  }

  build(table) {
    this.fold = made("button", { type: "button", class: "fold", tabindex: "-1" });
    this.fold.hidden = !this.inside.length;
    this.fold.addEventListener("click", (event) => {
      event.stopPropagation();
      table.toggle(this);
    });
    this.name = made("span", { class: this.node.own ? "kernel own" : this.kernel ? "kernel" : "module" });
    this.cells = {};
    for (const { key, text } of COLUMNS) this.cells[key] = made("td", { role: "gridcell", class: text ? "words" : `number ${key}` });
    this.where = cutInTheMiddle(this.node.path);
    this.cells.path = made("th", { role: "rowheader", scope: "row", class: "words path" }, this.fold, this.name, this.where);
    this.cells.path.title = [this.node.path, this.node.name, this.node.code].filter(Boolean).join("\n");
    this.cells.class.textContent = this.class;
    if (this.class && !this.kernel) this.cells.class.title = table.model.data.classes[this.node.class].path;
    if (this.place) this.cells.line.append(made("span", { class: "place" }, made("span", {}, this.file), `:${this.node.line}`));
    this.cells.line.title = this.place;
    this.element = made("tr", { role: "row", "data-node": String(this.index), tabindex: "-1" }, ...COLUMNS.map(({ key }) => this.cells[key]));
    this.element.addEventListener("click", () => table.choose(this));
  }

  // What the row is sorted and chosen by; its text is written when it is to be seen.
  put(result, metric) {
    const cost = result.costs[this.index];
    this.total = result.total(this.index);
    this.runs = cost === null ? 0n : cost.runs;
    this.times = cost === null ? null : cost.times;
    this.share = metric.of(this.total);
    this.whole = metric.of(result.whole_cost);
    this.moved = added(this.total.read, this.total.write);
    this.free = this.total.flops === 0n && this.moved === 0n;
    this.written = false;
  }

  write(exact) {
    if (this.written) return;
    this.written = true;
    const write = (key, value) => {
      this.cells[key].textContent = exact ? grouped(value) : figure(value, "");
      this.cells[key].title = grouped(value);
      this.cells[key].dataset.exact = value;
    };
    this.cells.repeat.title = `${grouped(this.runs)} runs in all`;
    write("flops", this.total.flops);
    write("read", this.total.read);
    write("write", this.total.write);
    this.cells.intensity.textContent = ratio(this.total.flops, this.moved);
    this.cells.share.textContent = percent(this.share, this.whole);
    this.cells.share.style.setProperty("--share", this.whole === 0n ? "0" : String(float(this.share, this.whole)));
  }

  // What a column is sorted by: below zero where this row comes before the other in rising order.
  before(other, key) {
    if (key === "path") return order(this.node.path || this.node.name, other.node.path || other.node.name) || order(this.node.name, other.node.name);
    if (key === "class") return order(this.class, other.class);
    if (key === "line") return order(this.file, other.file) || order(this.node.line || 0, other.node.line || 0);
    if (key === "repeat") return order(this.runs, other.runs);
    if (key === "share") return compared(this.share, other.share);
    if (key !== "intensity") return compared(this.total[key], other.total[key]);
    if (this.moved === 0n || other.moved === 0n) return order(this.moved !== 0n, other.moved !== 0n);
    return compared(scaled(this.total.flops, other.moved), scaled(other.total.flops, this.moved));
  }
}

class Table {
  constructor(state, model) {
    this.state = state;
    this.model = model;
    this.rows = [];
    model.nodes.forEach((_, index) => this.rows.push(new Row(this, index)));
    this.sorted = { key: null, falling: false };
    this.lists = LISTS.map((list) => element(`list-${list}`));
    this.head = made("thead", { role: "rowgroup" });
    this.body = made("tbody", { role: "rowgroup" });
    element("table").append(this.head, this.body);
    this.heads();
    this.body.addEventListener("keydown", (event) => this.key(event));
    for (const button of this.lists) button.addEventListener("click", () => this.turn(button.value));
    for (const id of ["search", "free"]) element(id).addEventListener("input", () => this.arrange());
    element("unfold").addEventListener("click", () => this.all(true));
    element("fold").addEventListener("click", () => this.all(false));
  }

  isFlat() {
    return this.state.list === "cost";
  }

  // Another list begins in its own order.
  turn(list) {
    this.state.list = list;
    this.order(null, false);
    this.state.changed();
  }

  heads() {
    const row = made("tr", { role: "row" });
    this.buttons = COLUMNS.map(({ key, title, text, width }) => {
      const button = made("button", { type: "button", "data-sort": key }, title);
      const cell = made("th", { role: "columnheader", scope: "col", "aria-sort": "none", class: text ? "words" : "number" }, button);
      button.addEventListener("click", () => this.sort(key));
      if (width) cell.style.width = `${width}px`;
      row.append(cell);
      return { key, cell };
    });
    this.head.append(row);
  }

  // Figures fall at first, words rise; a third time brings back the order of the list.
  sort(key) {
    const falls = !COLUMNS.find((column) => column.key === key).text;
    if (this.sorted.key !== key) this.order(key, falls);
    else if (this.sorted.falling === falls) this.order(key, !falls);
    else this.order(null, false);
    this.arrange();
  }

  order(key, falling) {
    this.sorted = { key, falling };
    for (const { key: own, cell } of this.buttons) {
      cell.setAttribute("aria-sort", own !== this.sorted.key ? "none" : this.sorted.falling ? "descending" : "ascending");
    }
  }

  show(result) {
    const metric = METRICS[this.state.metric] || METRICS.flops;
    this.metric = metric;
    element("table").classList.toggle("exact", this.state.exact);
    for (const row of this.rows) row.put(result, metric);
    this.buttons.find(({ key }) => key === "share").cell.firstChild.title = `of the ${metric.title}`;
    this.arrange();
  }

  ordered(indices) {
    const own = this.isFlat() ? { key: "share", falling: true } : { key: null };
    const { key, falling } = this.sorted.key === null ? own : this.sorted;
    if (key === null) return indices;
    return [...indices].sort((a, b) => (falling ? -1 : 1) * this.rows[a].before(this.rows[b], key) || a - b);
  }

  matching() {
    const wanted = element("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!wanted.length) return null;
    return new Set(this.rows.filter((row) => wanted.every((word) => row.words.includes(word))).map(({ index }) => index));
  }

  // The rows that are to be seen, in order.
  arrange() {
    const flat = this.isFlat();
    const free = element("free").checked;
    const found = this.matching();
    const seen = (index) => free || index === 0 || !this.rows[index].free;
    const shown = [];
    if (flat) {
      const kernels = this.rows.filter((row) => row.kernel && seen(row.index) && (found === null || found.has(row.index)));
      shown.push(...this.ordered(kernels.map(({ index }) => index)));
    } else {
      const held = found === null ? null : this.around(found);
      const enter = (index) => {
        if (!seen(index) || (held !== null && !held.has(index))) return;
        shown.push(index);
        if (held !== null || this.rows[index].open) this.ordered(this.rows[index].inside).forEach(enter);
      };
      enter(0);
    }
    element("table").classList.toggle("flat", flat);
    this.place(shown, flat, found);
    const matches = found === null ? shown.length : shown.filter((index) => found.has(index)).length;
    const hidden = this.rows.filter((row) => row.free && (!flat || row.kernel)).length;
    const parts = [`${grouped(BigInt(matches))} ${found === null ? (flat ? "kernels, dearest first" : "rows") : "found"}`, `shares are of the ${this.metric.title}`];
    if (!free && hidden) parts.push(`${grouped(BigInt(hidden))} that cost nothing are hidden`);
    element("found").textContent = `${parts.join("; ")}.`;
    for (const button of this.lists) button.setAttribute("aria-pressed", String(button.value === this.state.list));
    for (const id of ["unfold", "fold"]) element(id).hidden = flat;
  }

  // Those found and all modules around them.
  around(found) {
    const held = new Set(found);
    for (const index of found) for (let up = this.model.nodes[index].up; up >= 0; up = this.model.nodes[up].up) held.add(up);
    return held;
  }

  place(shown, flat, found) {
    const key = `${flat} ${shown}`;
    for (const index of shown) this.mark(this.rows[index], flat, found);
    if (key !== this.placed) {
      const focused = this.body.contains(document.activeElement) ? document.activeElement : null;
      this.body.replaceChildren(...shown.map((index) => this.rows[index].element));
      if (focused && this.body.contains(focused)) focused.focus({ preventScroll: true });
      this.placed = key;
    }
    this.shown = shown;
    if (!shown.includes(this.at)) this.at = shown[0];
    for (const index of shown) this.rows[index].element.tabIndex = index === this.at ? 0 : -1;
  }

  mark(row, flat, found) {
    row.write(this.state.exact);
    const open = row.open || found !== null;
    row.element.setAttribute("aria-level", String(flat ? 1 : row.level));
    row.element.style.setProperty("--level", String(flat ? 0 : row.level - 1));
    row.element.classList.toggle("found", found !== null && found.has(row.index));
    row.element.setAttribute("aria-selected", String(row.index === this.state.chosen));
    row.fold.hidden = flat || !row.inside.length;
    // One kernel by itself runs as often as everything around it makes it run.
    row.cells.repeat.textContent = row.times === null ? "-" : grouped(flat ? row.runs : row.times);
    row.where.hidden = !flat || !row.node.path;
    row.name.textContent = row.node.name;
    if (row.inside.length) {
      row.element.setAttribute("aria-expanded", String(open));
      row.fold.textContent = open ? "▾" : "▸";
      row.fold.setAttribute("aria-label", `${open ? "fold" : "unfold"} ${row.node.name}`);
    }
  }

  toggle(row, open = !row.open) {
    row.open = open;
    this.arrange();
  }

  all(open) {
    for (const row of this.rows) row.open = open || row.level < 2;
    this.arrange();
  }

  choose(row) {
    this.at = row.index;
    this.state.chosen = row.index;
    this.arrange();
    if (this.chose) this.chose(row.index);
  }

  // Unfolds what is around a row, and goes there. A module is a row of the tree alone.
  reveal(index) {
    for (let up = this.model.nodes[index].up; up >= 0; up = this.model.nodes[up].up) this.rows[up].open = true;
    if (!this.rows[index].kernel && this.isFlat()) this.turn("tree");
    this.choose(this.rows[index]);
  }

  key(event) {
    const index = this.shown.indexOf(Number(event.target.closest("tr").dataset.node));
    const row = this.rows[this.shown[index]];
    const flat = this.isFlat();
    const moves = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: this.shown.length - 1 };
    if (event.key in moves) this.focus(moves[event.key]);
    else if (event.key === "ArrowRight" && row.inside.length && !flat) row.open ? this.focus(index + 1) : this.toggle(row, true);
    else if (event.key === "ArrowLeft" && !flat) row.inside.length && row.open ? this.toggle(row, false) : this.focus(this.shown.indexOf(row.node.up));
    else if (event.key === "Enter" || event.key === " ") this.choose(row);
    else return;
    event.preventDefault();
  }

  focus(place) {
    if (place < 0 || place >= this.shown.length) return;
    this.at = this.shown[place];
    for (const index of this.shown) this.rows[index].element.tabIndex = index === this.at ? 0 : -1;
    this.rows[this.at].element.focus();
  }
}
