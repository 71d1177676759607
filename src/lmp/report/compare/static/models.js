// One model of the page at the chosen sizes: what lmp.link.numbers and the answer card say of it.

class Compared {
  constructor(data) {
    this.data = data;
    this.program = new Program(data.program);
    this.on = new OnDevice(data.on_device);
    this.fixed = Object.fromEntries(Object.entries(data.values).map(([name, text]) => [name, exactNumber(text)]));
    this.words = `${data.name} ${data.family} ${data.class}`.toLowerCase();
  }

  // ``bytes`` are those of a dtype word; none: as the checkpoint stores the model.
  at({ sizes, bytes, products, device, tp, engine }) {
    const own = bytes === undefined;
    const { calls, lacking } = this.data;
    const element = own ? { w_bytes: 2n, a_bytes: 2n, kv_bytes: 2n } : bytes;
    const call = Object.fromEntries(Object.entries(sizes).map(([name, value]) => [name, calls.includes(name) ? value : name === "cache_len" ? 0n : 1n]));
    const values = { ...this.fixed, ...call, ...element };
    const found = this.program.run(values);
    const totals = this.totals(found, own);
    const ask = { values: calls.includes("cache_len") ? values : { ...values, cache_len: undefined }, products, device, tp, changed: [], own: this.data.quantised ? own : own || undefined };
    const room = this.on.room({ ...ask, values, own: own || false }, engine, found);
    const time = room.fits === false ? { why: unfitting(room) } : this.on.time(ask, engine);
    const notes = [
      ...this.data.assumptions.filter(({ slot }) => found[slot] !== true).map(({ text }) => `not verified here: ${text} does not hold`),
      ...(calls.includes("cache_len") || sizes.cache_len === 0n ? [] : ["it has no KV cache: the figures are of the new tokens alone"]),
      ...Object.keys(lacking).map((name) => `${name} = ${grouped(this.fixed[name])} is put in here: no config states it`),
      ...(own && this.data.quantised ? [`weights as the checkpoint stores them (${this.data.quantised})`] : []),
      ...(time.why ? [`no time: ${time.why}`] : []),
      ...(room.why ? [`no memory: ${room.why}`] : []),
    ];
    return { model: this, totals, room, time, notes, tokens: call.batch_size * call.seq_len, weights: this.weights(totals, own, element) };
  }

  totals(found, own) {
    const slots = own ? this.data.own : this.data.totals;
    return Object.fromEntries(Object.entries(slots).map(([name, slot]) => [name, found[slot]]).filter(([, value]) => value !== NONE && typeof value !== "boolean"));
  }

  weights({ parameters_count: count }, own, { w_bytes: width }) {
    if (own) return this.data.weights === null ? undefined : exactNumber(this.data.weights);
    return count === undefined ? undefined : scaled(count, width);
  }
}

const perToken = (value, { tokens }) => (value === undefined ? undefined : share(value, tokens));
const share = (part, count) => reduced(aboveOf(part), belowOf(part) * count);

// What is compared: the exact value where there is one, and its text. Those with ``of`` can be plotted.
const FIGURES = [
  { key: "rate", title: "tokens/s", number: ({ time }) => rateOf(time, time.us), text: ({ time }) => each(rateOf(time, time.us)).slice(0, -9), of: true, low: ({ time }) => rateOf(time, time.high), high: ({ time }) => rateOf(time, time.low), written: (rate) => each(rate).slice(0, -9) },
  { key: "interval", title: "80% of tokens/s", words: ({ time }) => (time.why ? "" : `${each(rateOf(time, time.high)).slice(0, -9)} to ${each(rateOf(time, time.low)).slice(0, -9)}${time.exact ? "" : ", interpolated"}`) },
  { key: "us", title: "time", number: ({ time }) => time.us, text: ({ time }) => millis(time.us), of: true, low: ({ time }) => time.low, high: ({ time }) => time.high, written: millis },
  { key: "bound", title: "bound by", words: ({ time }) => (time.why ? "" : time.bound.join(" or ")) },
  { key: "held", title: "memory a GPU", unit: "B", value: ({ room }) => room.held, text: ({ room }) => `${gib(room.held)} of ${gib(room.total)} GiB`, of: true },
  { key: "fits", title: "fits", words: ({ room }) => (room.why ? "" : room.fits ? `yes${room.most === null ? "" : `, to batch ${grouped(room.most)}`}` : `no${room.smallest === null ? "" : `: tp ${room.smallest} does`}`) },
  { key: "token", title: "KV bytes a token", unit: "B", value: ({ room }) => room.token },
  { key: "cache", title: "KV cache a GPU", unit: "B", value: ({ room }) => room.cache, of: true },
  { key: "flops_token", title: "FLOPs a token", unit: "FLOP", value: (found) => perToken(found.totals.flops, found), of: true },
  { key: "flops", title: "FLOPs", unit: "FLOP", value: ({ totals }) => totals.flops },
  { key: "bytes", title: "bytes, eager", unit: "B", value: ({ totals }) => (totals.read === undefined ? undefined : added(totals.read, totals.write)) },
  { key: "compulsory", title: "bytes, compulsory", unit: "B", value: ({ totals }) => totals.compulsory },
  { key: "compulsory_token", title: "compulsory bytes a token", unit: "B", value: (found) => perToken(found.totals.compulsory, found), of: true },
  { key: "weights", title: "weights", unit: "B", value: ({ weights }) => weights },
  { key: "parameters_count", title: "parameters", value: ({ totals }) => totals.parameters_count },
];

const rateOf = ({ tokens }, us) => (us ? tokens * 1e6 / us : undefined);

// A figure of a model as text; nothing where it is not known.
function written(figureOf, found) {
  if (figureOf.words) return figureOf.words(found);
  const value = (figureOf.value || figureOf.number)(found);
  if (value === undefined) return "";
  return figureOf.text ? figureOf.text(found) : figure(value, figureOf.unit || "");
}

// The same as a plain number, to sort by and to draw.
function plainNumber(figureOf, found) {
  if (figureOf.words) return undefined;
  if (figureOf.number) return figureOf.number(found);
  const value = figureOf.value(found);
  return value === undefined ? undefined : float(value, 1n);
}
