// Exact numbers as people read them, digit for digit as lmp.report.formats.figures writes them.

const PREFIXES = ["", "k", "M", "G", "T", "P", "E", "Z", "Y", "R", "Q"];

function grouped(value) {
  const [whole, ...rest] = value.toString().split(".");
  return whole.includes("/") ? whole : [whole.replace(/\B(?=(\d{3})+(?!\d))/g, ","), ...rest].join(".");
}

// above / below to the nearest whole number; a half goes up.
const nearest = (above, below) => (above * 2n + below) / (2n * below);

// A value of at most 1000 with four digits.
function fourDigits(above, below) {
  const before = (above / below).toString().length;
  let places = Math.max(0, 4 - before);
  let whole = nearest(above * 10n ** BigInt(places), below);
  if (whole.toString().length > before + places) {
    places = Math.max(0, places - 1);
    whole /= 10n;
  }
  const text = whole.toString().padStart(places + 1, "0");
  return places ? `${text.slice(0, -places)}.${text.slice(-places)}` : text;
}

function figure(value, unit) {
  if (aboveOf(value) < 0n) return `-${figure(scaled(-1n, value), unit)}`;
  let step = Math.floor((floor(value).toString().length - 1) / 3);
  if (step === 0 && isWhole(value)) return `${value} ${unit}`.trim();
  let shown = fourDigits(aboveOf(value), belowOf(value) * 1000n ** BigInt(step));
  if (shown === "1000") [step, shown] = [step + 1, "1.000"];
  const prefix = step < PREFIXES.length ? PREFIXES[step] : `e${3 * step} `;
  return `${shown} ${prefix}${unit}`.trim();
}

function decimal(above, below, places) {
  const digits = nearest(above * 10n ** BigInt(places), below).toString().padStart(places + 1, "0");
  return `${grouped(digits.slice(0, -places))}.${digits.slice(-places)}`;
}

const percent = (part, whole) => (whole === 0n ? "-" : `${decimal(...over(scaled(100n, part), whole), 1)}%`);
const ratio = (part, whole) => (whole === 0n ? "-" : decimal(...over(part, whole), 2));

// time / unit seconds.
function seconds(time, unit) {
  const [above, below] = over(time, unit);
  for (const [name, scale] of [["s", 1n], ["ms", 1000n], ["µs", 1000000n], ["ns", 1000000000n]]) {
    const long = above * scale;
    if (long >= below || name === "ns") {
      const places = long < 10n * below ? 3 : long < 100n * below ? 2 : 1;
      return `${decimal(long, below, places)} ${name}`;
    }
  }
  return "";
}

// A float of a quotient of any size, for plots.
function float(part, whole) {
  const [above, below] = over(part, whole);
  if (above === 0n) return 0;
  const shift = BigInt(bits(above) - bits(below) - 60);
  const shifted = shift < 0n ? (above << -shift) / below : above / (below << shift);
  return Number(shifted) * 2 ** Number(shift);
}
