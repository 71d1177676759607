// The model with numbers put in: what lmp.link.numbers does, on the page's data.

const IN_BYTES = new Set(["read", "write", "compulsory"]);

// Metric -> title, unit, and its value in a node's totals.
const METRICS = {
  flops: { title: "FLOPs", unit: "FLOP", of: (cost) => cost.flops },
  matmul_flops: { title: "matmul FLOPs", unit: "FLOP", of: (cost) => cost.matmul_flops },
  bytes: { title: "bytes read and written", unit: "B", of: (cost) => added(cost.read, cost.write) },
  read: { title: "bytes read", unit: "B", of: (cost) => cost.read },
  write: { title: "bytes written", unit: "B", of: (cost) => cost.write },
  bound: { title: "time bound", unit: "s", of: (cost) => cost.bound },
};

const none = () => ({ flops: 0n, matmul_flops: 0n, read: 0n, write: 0n, bound: 0n });

function addTo(total, cost) {
  for (const name of Object.keys(total)) total[name] = added(total[name], cost[name]);
}

// A device's rates, with every time as a whole number of 1 / denominator seconds.
class Device {
  constructor({ name, matmul_flops, other_flops, bandwidth, source }) {
    this.name = name;
    this.source = source;
    this.matmul = BigInt(matmul_flops);
    this.other = BigInt(other_flops);
    this.bandwidth = BigInt(bandwidth);
    this.denominator = this.matmul * this.other * this.bandwidth;
  }

  // The longer of computing and moving at peak rates: what one kernel cannot take less than.
  bound(flops, bytes, matmul) {
    const computing = flops * (matmul ? this.other : this.matmul) * this.bandwidth;
    const moving = scaled(bytes, this.matmul * this.other);
    return compared(computing, moving) > 0 ? computing : moving;
  }
}

class Model {
  constructor(data) {
    this.data = data;
    this.nodes = data.nodes;
    this.program = new Program(data.program);
    this.devices = new Map(data.devices.map((device) => [device.name, new Device(device)]));
    this.inside = this.nodes.map(() => []);
    this.nodes.forEach((node, index) => node.up >= 0 && this.inside[node.up].push(index));
  }

  isKernel(index) {
    return this.nodes[index].costs !== undefined;
  }

  at(values, deviceName) {
    return new Result(this, values, this.devices.get(deviceName));
  }
}

// ``runs`` and ``total`` of a node count the repeats around it; ``once`` is one run of a kernel.
class Result {
  constructor(model, values, device) {
    this.model = model;
    this.values = values;
    this.device = device;
    this.trouble = [];
    this.fractions = Boolean(model.data.quantised) || Object.values(values).some((value) => !isWhole(value));
    this.found = model.program.run(values);
    this.costs = model.nodes.map(() => null);
    this.enter(0, 1n);
    this.totals = {};
    for (const [name, slot] of Object.entries(model.data.totals)) this.totals[name] = this.valued(slot, `the total of ${name}`, IN_BYTES.has(name));
    this.held = {};
    for (const [name, slot] of Object.entries(model.data.held)) this.held[name] = this.valued(slot, `the bytes of ${name}`, true);
    this.violated = model.data.assumptions.filter(({ slot }) => this.found[slot] !== true);
  }

  get whole_cost() {
    return this.costs[0].total;
  }

  whole(slot, what) {
    return this.valued(slot, what, false);
  }

  // Only bytes may be fractions, and only where those of an element are.
  valued(slot, what, inBytes) {
    const value = this.found[slot];
    if (isWhole(value) || (inBytes && this.fractions && value !== NONE)) return value;
    const why = value === NONE ? "it divides by zero, or grows beyond all bounds" : `it is ${value.above}/${value.below}, not a whole number`;
    this.trouble.push(`${what} has no value at these sizes: ${why}`);
    return 0n;
  }

  enter(index, around) {
    const node = this.model.nodes[index];
    const place = node.line === undefined ? node.name : `${node.name} (line ${node.line}${node.path ? `, ${node.path}` : ""})`;
    const times = this.whole(node.repeat, `how often ${place} runs`);
    if (times < 0n && around > 0n) this.trouble.push(`${place} would run ${times} times`);
    const runs = around * times;
    const cost = { times, runs, total: none(), once: null };
    this.costs[index] = cost;
    if (times === 0n) return;
    if (node.costs) {
      const [flops, read, write] = node.costs.map((slot, i) => this.valued(slot, `${["FLOPs", "bytes read", "bytes written"][i]} of ${place}`, i > 0));
      const bound = this.device.bound(flops, added(read, write), node.matmul && !node.wide);
      cost.once = { flops, matmul_flops: node.matmul ? flops : 0n, read, write, bound };
      for (const name of Object.keys(cost.once)) cost.total[name] = scaled(runs, cost.once[name]);
      return;
    }
    for (const child of this.model.inside[index]) {
      this.enter(child, runs);
      addTo(cost.total, this.costs[child].total);
    }
  }

  // What a node costs; nothing where something around it does not run.
  total(index) {
    return this.costs[index] === null ? none() : this.costs[index].total;
  }

  runs(index) {
    return this.costs[index] === null ? 0n : this.costs[index].runs;
  }
}
