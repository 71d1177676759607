// Filters, sorts and opens the rows that are in the page. What is chosen stands in the address behind the #.

const element = (id) => document.getElementById(id);
const FILTERS = ["status", "cause", "task"];

class Family {
  constructor(row) {
    this.row = row;
    this.more = row.nextElementSibling;
    this.key = row.dataset.key;
    this.opener = row.querySelector(".opener");
    this.words = `${row.textContent}\n${this.more.textContent}`.toLowerCase();
    this.orders = [...row.cells].map((cell) => (cell.dataset.order === undefined ? null : Number(cell.dataset.order)));
  }

  open(open) {
    this.opened = open;
    this.opener.setAttribute("aria-expanded", String(open));
    this.row.classList.toggle("open", open);
    this.more.hidden = !open || this.row.hidden;
  }

  show(shown) {
    this.row.hidden = !shown;
    this.more.hidden = !shown || !this.opened;
  }
}

class Zoo {
  constructor() {
    this.body = element("table").tBodies[0];
    this.heads = [...document.querySelectorAll("#table thead th")];
    this.keys = this.heads.map((head) => head.dataset.key);
    this.figures = new Set(this.heads.filter((head) => head.classList.contains("number")).map((head) => head.dataset.key));
    this.families = [...this.body.querySelectorAll("tr.family")].map((row) => new Family(row));
    this.start();
    this.listen();
    this.read();
  }

  start() {
    this.sorted = { key: null, falling: false };
    element("filters").reset();
    for (const family of this.families) family.open(false);
  }

  listen() {
    element("filters").addEventListener("submit", (event) => event.preventDefault());
    element("text").addEventListener("input", () => this.changed());
    for (const name of FILTERS) element(name).addEventListener("change", () => this.changed());
    element("unfold").addEventListener("click", () => this.all(true));
    element("fold").addEventListener("click", () => this.all(false));
    element("reset").addEventListener("click", () => {
      this.start();
      this.changed();
    });
    for (const head of this.heads) head.firstChild.addEventListener("click", () => this.sort(head.dataset.key));
    this.body.addEventListener("click", (event) => this.clicked(event));
    this.body.addEventListener("keydown", (event) => this.key(event));
    window.addEventListener("hashchange", () => {
      this.start();
      this.read();
    });
  }

  // Figures fall at first, words rise; a third time brings back the order of names.
  sort(key) {
    const falls = this.figures.has(key);
    if (this.sorted.key !== key) this.sorted = { key, falling: falls };
    else if (this.sorted.falling === falls) this.sorted = { key, falling: !falls };
    else this.sorted = { key: null, falling: false };
    this.changed();
  }

  changed() {
    this.arrange();
    this.write();
  }

  // What has no value in a column comes last, whichever way it is sorted.
  ordered() {
    const at = this.keys.indexOf(this.sorted.key);
    if (at < 0) return this.families;
    const sign = this.sorted.falling ? -1 : 1;
    return [...this.families].sort((one, other) => {
      const [a, b] = [one.orders[at], other.orders[at]];
      if (a === null || b === null) return (a === null) - (b === null);
      return sign * (a - b);
    });
  }

  matches(family, wanted) {
    return (
      FILTERS.every((name) => !element(name).value || family.row.dataset[name] === element(name).value) &&
      wanted.every((word) => family.words.includes(word))
    );
  }

  arrange() {
    const focused = this.body.contains(document.activeElement) ? document.activeElement : null;
    const wanted = element("text").value.toLowerCase().split(/\s+/).filter(Boolean);
    const ordered = this.ordered();
    for (const family of ordered) family.show(this.matches(family, wanted));
    this.body.replaceChildren(...ordered.flatMap((family) => [family.row, family.more]));
    this.shown = ordered.filter((family) => !family.row.hidden);
    for (const head of this.heads) {
      const own = head.dataset.key === this.sorted.key;
      head.setAttribute("aria-sort", !own ? "none" : this.sorted.falling ? "descending" : "ascending");
    }
    element("found").textContent = `${this.shown.length} of ${this.families.length} families`;
    this.reach(this.shown.find((family) => family.opener === focused) || this.shown[0]);
    if (focused && focused.isConnected && focused.offsetParent) focused.focus({ preventScroll: true });
  }

  // One row of the table is reached by Tab; arrow keys lead to the others.
  reach(reached) {
    for (const family of this.families) family.opener.tabIndex = family === reached ? 0 : -1;
  }

  toggle(family) {
    family.open(!family.opened);
    this.write();
  }

  all(open) {
    for (const family of open ? this.shown : this.families) family.open(open);
    this.write();
  }

  clicked(event) {
    const row = event.target.closest("tr.family");
    if (!row || String(getSelection())) return;
    const family = this.families.find((one) => one.row === row);
    this.reach(family);
    this.toggle(family);
  }

  key(event) {
    const at = this.shown.findIndex((family) => family.opener === event.target);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: this.shown.length - 1 }[event.key];
    if (at < 0) return;
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      this.shown[at].open(event.key === "ArrowRight");
      this.write();
    } else if (to === undefined) return;
    else if (to >= 0 && to < this.shown.length) {
      this.reach(this.shown[to]);
      this.shown[to].opener.focus();
    }
    event.preventDefault();
  }

  read() {
    const given = new URLSearchParams(location.hash.replace(/^#/, ""));
    element("text").value = given.get("text") || "";
    for (const name of FILTERS) {
      const known = [...element(name).options].some((option) => option.value === given.get(name));
      element(name).value = known ? given.get(name) : "";
    }
    const [key, falling] = (given.get("sort") || "").split(" ");
    if (this.keys.includes(key)) this.sorted = { key, falling: falling === "falling" };
    const opened = new Set(given.getAll("open"));
    for (const family of this.families) if (opened.has(family.key)) family.open(true);
    this.arrange();
    const first = this.shown.find((family) => family.opened);
    if (first) first.row.scrollIntoView({ block: "nearest" });
    else if (given.size) element("families-title").scrollIntoView({ block: "start" });
  }

  write() {
    const found = new URLSearchParams();
    for (const name of ["text", ...FILTERS]) if (element(name).value) found.set(name, element(name).value);
    if (this.sorted.key !== null) found.set("sort", this.sorted.falling ? `${this.sorted.key} falling` : this.sorted.key);
    const opened = this.families.filter((family) => family.opened);
    if (opened.length <= 5) for (const family of opened) found.append("open", family.key); // a link stays short
    const hash = found.size ? `#${found}` : "";
    if (location.hash !== hash) history.replaceState(null, "", hash || location.pathname);
  }
}

function themed() {
  element("theme").addEventListener("change", (event) => {
    if (event.target.value) document.documentElement.dataset.theme = event.target.value;
    else delete document.documentElement.dataset.theme;
  });
}

themed();
new Zoo();
