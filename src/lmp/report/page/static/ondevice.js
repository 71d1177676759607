// A model on devices: times that were predicted on a grid, and memory worked out exactly. lmp.report.on_device wrote it.

const GIB = 1n << 30n;

// The sizes of a grid around one, each with its weight; one alone if it is of the grid, null outside of it.
function around(sizes, at) {
  if (sizes.includes(at)) return [[at, 1]];
  const next = sizes.findIndex((size) => size > at);
  if (next < 1) return null;
  const [low, high] = [sizes[next - 1], sizes[next]];
  const part = (at - low) / (high - low);
  return [[low, 1 - part], [high, part]];
}

const spanned = (found) => found.map(([size]) => grouped(BigInt(size))).join("–");

function phaseOf({ seq_len, cache_len }) {
  if (cache_len === undefined) return "";
  if (cache_len === 0n) return "prefill";
  return seq_len === 1n ? "decode" : "chunked prefill";
}

class OnDevice {
  constructor(data) {
    this.data = data;
    this.tables = new Map((data.tables || []).map((table) => [this.key(table), table]));
  }

  key({ device, engine, tp, word, phase }) {
    return [device, engine, tp, word, phase].join(" ");
  }

  // The word under which times of these bytes and products were predicted; undefined if there are none. ``own``: the
  // model as its checkpoint stores it is meant, or is not; undefined: the bytes decide.
  word({ values, products, own }) {
    if (own) return "";
    const same = (found) => ["w_bytes", "a_bytes", "kv_bytes"].every((name) => compared(exactNumber(found[name]), values[name]) === 0);
    return Object.keys(this.data.words).find((word) => (own === undefined || word) && this.data.words[word].products === products && same(this.data.words[word]));
  }

  // { us, low, high, bound, tokens } of a call, beside how it was found; or { why } there is no time.
  time(ask, engine) {
    const { values, device, tp, changed } = ask;
    const { data } = this;
    if (data.reason) return { why: data.reason };
    if (changed.length) return { why: `predicted for the config as it is: ${changed.join(", ")} changed` };
    const phase = phaseOf(values) || "prefill";
    const axes = data.axes[phase];
    if (!axes) return { why: `not predicted here: ${phase}` };
    const word = this.word(ask);
    if (word === undefined) return { why: "not predicted here: these bytes of elements" };
    const table = this.tables.get(this.key({ device, engine, tp, word, phase }));
    if (!table) return { why: `not predicted here: ${word ? `${word} with ` : ""}${engine} on ${device}` };
    if (table.reason) return { why: table.reason };
    const length = phase === "decode" ? values.cache_len : values.seq_len;
    const found = { batches: around(axes.batches, Number(values.batch_size)), lengths: around(axes.lengths, Number(length)) };
    if (!found.batches) return { why: `not predicted here: batches are ${this.range(axes.batches)}` };
    if (!found.lengths) return { why: `not predicted here: ${phase === "decode" ? "caches" : "prompts"} are of ${this.range(axes.lengths)} tokens` };
    return this.read(table, axes, found, values);
  }

  range(sizes) {
    return `${grouped(BigInt(sizes[0]))} to ${grouped(BigInt(sizes.at(-1)))}`;
  }

  read(table, axes, { batches, lengths }, values) {
    const points = batches.flatMap(([batch, one]) => lengths.map(([length, other]) => [axes.batches.indexOf(batch) * axes.lengths.length + axes.lengths.indexOf(length), one * other]));
    if (points.some(([at]) => table.us[at] === null)) return { why: "not predicted at these sizes" };
    const sum = (of) => points.reduce((total, [at, weight]) => total + weight * of[at], 0);
    const exact = points.length === 1;
    const missed = exact ? 0 : this.missed(table, axes, batches[0][0], lengths[0][0]);
    const bounds = new Set(points.map(([at]) => table.bound[at]));
    return {
      us: sum(table.us),
      low: sum(table.low) / (1 + missed),
      high: sum(table.high) * (1 + missed),
      bound: [...bounds],
      tokens: Number(values.batch_size * values.seq_len),
      exact,
      missed,
      batches: spanned(batches),
      lengths: spanned(lengths),
    };
  }

  // The largest error of what is interpolated in this cell and in those around it, as a part of the time.
  missed(table, axes, batch, length) {
    const [row, column] = [axes.batches.indexOf(batch), axes.lengths.indexOf(length)];
    const columns = axes.lengths.length - 1;
    const near = (at, place) => Math.abs(at - place) < 2;
    return Math.max(0, ...table.missed.filter((_, index) => near(Math.floor(index / columns), row) && near(index % columns, column)));
  }

  // Bytes on each GPU, as lmp.predict.screen.room has them; or { why } they are not known. ``found`` are the program's values.
  room(ask, engine, found) {
    const table = this.data.room;
    if (this.data.reason) return { why: this.data.reason };
    if (table.reason) return { why: table.reason };
    if (ask.changed.length) return { why: `of the config as it is: ${ask.changed.join(", ")} changed` };
    const gpu = table.gpus.find(({ tp }) => tp === ask.tp);
    if (!gpu) return { why: `the model does not divide over ${ask.tp} GPUs` };
    const own = this.on(gpu, ask, engine, found);
    if (own.why) return own;
    const fitting = table.gpus.find((one) => one.divides && this.on(one, ask, engine, found).fits);
    return { ...own, smallest: fitting ? fitting.tp : null };
  }

  // One GPU of a group of so many.
  on(gpu, { values, device, own = this.data.room.quantised }, engine, found) {
    const table = this.data.room;
    const serving = engine !== this.data.eager;
    const stored = gpu.weights[own ? "" : values.w_bytes.toString()];
    if (!stored) return { why: `not worked out for weights of ${grouped(values.w_bytes)} B` };
    if (serving && values.batch_size > BigInt(table.most_batch)) return { why: `not worked out for more than ${grouped(BigInt(table.most_batch))} sequences` };
    const { bytes: activations, least } = serving ? { bytes: exactNumber(gpu.serving[device]) } : this.activations(gpu, values.seq_len);
    if (activations === undefined) return { why: `not worked out for more than ${grouped(BigInt(table.lengths.at(-1)))} new tokens` };
    const weights = exactNumber(stored[serving ? 1 : 0]);
    const fixed = [weights, exactNumber(gpu.reserve)].reduce(added);
    const cache = found[gpu.cache];
    // An engine runs steps of so many tokens. Without one, a call has the activations of every sequence.
    const live = serving ? activations : scaled(values.batch_size, activations);
    const steady = serving ? added(fixed, live) : fixed;
    const grows = serving ? cache : added(cache, live);
    const total = scaled(exactNumber(table.totals[device]), serving ? exactNumber(table.utilization) : 1n);
    const available = added(total, scaled(-1n, steady));
    const most = this.most(available, grows, values.batch_size, serving && gpu.block !== null ? [found[gpu.block], found[gpu.request]] : null);
    const fits = compared(available, 0n) >= 0 && (most === null || most >= values.batch_size);
    return { weights, activations: live, cache, held: added(steady, grows), total, fits, most, least: least || false, token: found[gpu.token] };
  }

  // The most sequences of this length that fit; null where nothing is kept. An engine gives them whole blocks.
  most(available, cache, batch, blocks) {
    const left = compared(available, 0n) > 0 ? available : 0n;
    if (blocks) return floor(quotientOf(left, blocks[0])) / floor(blocks[1]);
    return compared(cache, 0n) > 0 ? floor(quotientOf(scaled(left, batch), cache)) : null;
  }

  // Without an engine: of a call that was looked at, or on the line between two, which is never below what is alive.
  activations(gpu, tokens) {
    const { lengths } = this.data.room;
    const parts = around(lengths, Number(tokens));
    if (!parts) return {};
    const [low, high] = parts.map(([length]) => exactNumber(gpu.activations[lengths.indexOf(length)]));
    if (high === undefined) return { bytes: low };
    const [from, to] = parts.map(([length]) => BigInt(length));
    const grown = quotientOf(scaled(added(high, scaled(-1n, low)), tokens - from), to - from);
    return { bytes: ceil(added(low, grown)), least: true };
  }

  // What to type for the same figures.
  command(ask, engine, words) {
    const { values, device, tp, changed } = ask;
    const sizes = [["-b", values.batch_size], ["-s", values.seq_len], ["-c", values.cache_len]].filter(([, value]) => value !== undefined && value !== 0n);
    const known = this.word(ask);
    const set = [...changed, ...(words || known !== undefined ? [] : ["w_bytes", "a_bytes", "kv_bytes"])];
    return [
      `lmp predict ${this.data.subject} --device ${device}`,
      ...(engine === this.data.eager ? [] : [`--engine ${engine}`]),
      ...(tp === 1 ? [] : [`--tp ${tp}`]),
      ...(this.data.ep === 1 ? [] : [`--ep ${this.data.ep}`]),
      ...sizes.map(([option, value]) => `${option} ${value}`),
      ...(known === "" ? [] : [known || words].filter(Boolean).map((word) => `--dtype ${word}`)),
      ...set.map((name) => `--set ${name}=${values[name]}`),
    ].join(" ");
  }
}

const quotientOf = (a, b) => reduced(aboveOf(a) * belowOf(b), belowOf(a) * aboveOf(b));

const millis = (us) => `${grouped((us / 1e3).toFixed(3))} ms`;
const each = (rate) => `${grouped(BigInt(Math.round(rate)))} tokens/s`;
const gib = (bytes) => decimal(aboveOf(bytes), belowOf(bytes) * GIB, 2);

// The cards of a call on a device: eager and serving side by side, memory, and what a token takes in the cache.
class DeviceCards {
  constructor(list, model) {
    this.list = list;
    this.model = model;
  }

  show(ask, engine, found) {
    const { data } = this.model;
    const eager = this.model.room(ask, data.eager, found);
    const serving = this.model.room(ask, engine, found);
    this.list.replaceChildren(
      this.time("eager", "time, eager", this.model.time(ask, data.eager), eager),
      this.time("serving", `time, serving (${engine})`, this.model.time(ask, engine), serving),
      this.memory(eager, serving, engine, ask.tp),
      this.token(eager, ask.tp),
    );
  }

  card(name, title, text, notes = [], second = "") {
    const more = second ? [made("dd", { class: "second" }, second)] : [];
    return made("div", { "data-total": name }, made("dt", {}, title), made("dd", {}, text), ...more, ...notes.map((note) => made("dd", { class: "why" }, note)));
  }

  time(name, title, found, room) {
    if (found.why) return this.card(name, title, "no time", [found.why]);
    if (room.fits === false) return this.card(name, title, "no time", [unfitting(room)]);
    const rate = (us) => (us ? found.tokens * 1e6 / us : 0);
    const where = found.exact ? [] : [`interpolated (batch ${found.batches}; ${found.lengths} tokens): ${(100 * found.missed).toFixed(1)}% wider`];
    const bound = found.bound.length === 1 ? this.bound(found.bound[0]) : found.bound.map((one) => this.bound(one)).join(" or ");
    const notes = [`80%: ${millis(found.low).slice(0, -3)} to ${millis(found.high)}`, bound, ...where];
    return this.card(name, title, millis(found.us), notes, each(rate(found.us)));
  }

  bound(name) {
    return name === "launch" ? "launch-bound: the host starts kernels" : this.model.data.bounds[name] || name;
  }

  memory(eager, serving, engine, tp) {
    const title = tp === 1 ? "memory held" : `memory held, each of ${tp} GPUs`;
    if (serving.why && eager.why) return this.card("memory", title, "not known", [eager.why]);
    const says = (room, who) => (room.why ? `${who}: ${room.why}` : `${who}: ${room.least ? "at most " : ""}${gib(room.held)} of ${gib(room.total)} GiB, ${room.fits ? `fits${room.most === null ? "" : `, up to batch ${grouped(room.most)}`}` : unfitting(room)}`);
    const main = serving.why ? eager : serving;
    return this.card("memory", title, `${gib(main.held)} GiB`, [says(serving, engine), says(eager, "eager")], main.fits ? "fits" : "does not fit");
  }

  token(room, tp) {
    const title = "KV cache a token";
    if (room.why) return this.card("token", title, "not known", [room.why]);
    return this.card("token", title, `${grouped(room.token)} B`, [`one token more of a sequence${tp === 1 ? "" : ", on each GPU"}`]);
  }
}

// One line that says what would fit.
function unfitting({ smallest, most }) {
  const ways = [...(smallest === null ? [] : [`tp ${smallest}`]), ...(most ? [`batch ${grouped(most)}`] : [])];
  return ways.length ? `does not fit; ${ways.join(" or ")} does` : "does not fit, on no tp up to 64";
}
