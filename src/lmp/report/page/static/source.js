// The chosen part in full, and source lines with what stands on each.

class Part {
  constructor(state, model) {
    this.state = state;
    this.model = model;
    this.box = element("part");
  }

  show(result) {
    const index = this.state.chosen;
    const node = this.model.nodes[index];
    const { classes, labels } = this.model.data;
    const found = [];
    const add = (title, ...content) => found.push(made("div", {}, made("dt", {}, title), made("dd", {}, ...content)));
    const runs = result.runs(index);
    add(node.costs ? "kernel" : node.own ? "kernels" : "module", node.name);
    if (node.path) add("path", made("code", {}, node.path));
    add("class", made("code", {}, classes[node.costs ? node.in : node.class].path));
    if (node.file !== undefined) add("line", made("code", {}, `${labels[node.file]}:${node.line}`));
    if (node.code) add("code", made("code", {}, node.code));
    if (node.words) add("what it does", node.words);
    if (node.causal) add("causal", "its FLOPs are counted in full all the same");
    add("runs", grouped(runs));
    const total = result.total(index);
    const once = node.costs && result.costs[index] && result.costs[index].once;
    ["flops", "read", "write"].forEach((key, place) => {
      const title = { flops: "FLOPs", read: "bytes read", write: "bytes written" }[key];
      const inside = [made("span", { class: "exact", "data-part": key }, grouped(total[key]))];
      if (once && runs !== 1n) inside.push(` in all, ${grouped(once[key])} a run`);
      if (node.formulas) inside.push(made("code", { class: "formula" }, node.formulas[place]));
      add(title, ...inside);
    });
    add(`time bound on ${result.device.name}`, seconds(total.bound, result.device.denominator));
    this.box.replaceChildren(made("dl", { class: "part" }, ...found));
  }
}

class Source {
  constructor(state, model) {
    this.state = state;
    this.model = model;
    this.box = element("source");
    this.select = element("source-class");
    model.data.classes.forEach(({ name, path }, index) => this.select.append(made("option", { value: String(index), title: path }, name)));
    this.select.addEventListener("change", () => this.open(Number(this.select.value)));
    this.at = 0;
    this.lines = new Map();
    this.build();
  }

  // Shows the class whose forward() the part stands in; of a module its own class.
  choose(index) {
    const node = this.model.nodes[index];
    this.open(node.costs ? node.in : node.class, node.costs ? node : null);
  }

  open(index, node) {
    this.at = index;
    this.marked = node ? `${node.file}:${node.line}` : null;
    this.build();
    this.show(this.result);
  }

  build() {
    this.select.value = String(this.at);
    this.lines = new Map();
    const { code, labels } = this.model.data;
    const blocks = code[this.at].map(({ file, title, first, lines, left_out }) => {
      const rows = lines.map((text, index) => this.row(file, first + index, text));
      for (const [from, to] of left_out || []) this.leaveOut(rows, from - first, to - first);
      const head = made("tr", {}, ...["line", "FLOPs", "read", "written", "share", "code"].map((name) => made("th", { scope: "col", class: name === "code" ? "words" : "number", "data-cost": { FLOPs: "flops", read: "read", written: "write" }[name] || "" }, name)));
      const table = made("table", { class: "code" }, made("thead", {}, head), made("tbody", {}, ...rows.flat()));
      const name = made("h3", {}, title || "outside of functions", " ", made("code", { class: "quiet" }, `${labels[file] || file}:${first}`));
      return [name, made("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `source of ${title}` }, table)];
    });
    this.box.replaceChildren(...blocks.flat());
  }

  row(file, line, text) {
    const place = `${file}:${line}`;
    const cells = ["flops", "read", "write", "share"].map((key) => made("td", { class: "number", "data-cost": key }));
    const row = made("tr", { "data-line": String(line) }, made("th", { scope: "row", class: "number" }, String(line)), ...cells, made("td", { class: "text" }, made("pre", {}, text)));
    if (place === this.marked) row.classList.add("marked");
    const kernels = made("tr", { class: "kernels", hidden: true }, made("td", {}), ...cells.map((cell) => made("td", { "data-cost": cell.dataset.cost })), made("td", {}));
    this.lines.set(place, { row, cells, kernels: kernels.lastChild, kernelRow: kernels });
    return [row, kernels];
  }

  // A docstring is one row: its lines have numbers and no cost.
  leaveOut(rows, from, to) {
    for (let index = from; index <= to; index++) {
      const [row] = rows[index];
      if (index > from) row.hidden = true;
      else row.lastChild.firstChild.textContent += " …";
    }
  }

  // Every cost of the class stands at one line; those of a call at the line of the call.
  show(result) {
    this.result = result;
    const { nodes } = this.model;
    const metric = METRICS[this.state.metric] || METRICS.flops;
    const whole = metric.of(result.whole_cost);
    const sums = new Map();
    nodes.forEach((node, index) => {
      const place = `${node.file}:${node.line}`;
      if (node.in !== this.at || !this.lines.has(place)) return;
      if (!sums.has(place)) sums.set(place, { total: none(), kernels: new Map() });
      const sum = sums.get(place);
      const cost = result.total(index);
      addTo(sum.total, cost);
      const name = node.costs ? node.name : `${node.name}: ${this.model.data.classes[node.class].name}`;
      if (!sum.kernels.has(name)) sum.kernels.set(name, none());
      addTo(sum.kernels.get(name), cost);
    });
    for (const [place, { row, cells, kernels, kernelRow }] of this.lines) {
      const sum = sums.get(place);
      kernelRow.hidden = !sum;
      row.classList.toggle("costs", Boolean(sum));
      if (!sum) continue;
      this.write(cells, sum.total, metric, whole);
      kernels.replaceChildren(...this.kernels(sum.kernels));
      row.style.setProperty("--share", whole === 0n ? "0" : String(float(metric.of(sum.total), whole)));
    }
    const places = nodes.filter((node) => !node.costs && !node.own && node.class === this.at).length;
    element("source-note").textContent = `Costs of the line in all calls of the class${places > 1 ? `, at ${places} places of the tree` : ""}; what a line calls is in it. Shares are of the ${metric.title} of the whole.`;
  }

  write(cells, total, metric, whole) {
    const { exact } = this.state;
    const units = { flops: "FLOP", read: "B", write: "B" };
    for (const cell of cells) {
      const key = cell.dataset.cost;
      if (key === "share") cell.textContent = percent(metric.of(total), whole);
      else {
        cell.textContent = exact ? grouped(total[key]) : figure(total[key], units[key]);
        cell.title = grouped(total[key]);
        cell.dataset.exact = total[key].toString();
      }
    }
  }

  kernels(found) {
    return [...found].map(([name, cost]) => made("span", { class: "chip" }, name, " ", made("b", {}, [cost.flops && figure(cost.flops, "FLOP"), figure(added(cost.read, cost.write), "B")].filter(Boolean).join(", "))));
  }
}
