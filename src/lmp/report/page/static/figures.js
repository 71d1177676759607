// Exact numbers as people read them, digit for digit as lmp.report.formats.figures writes them.

const PREFIXES = ["", "k", "M", "G", "T", "P", "E", "Z", "Y", "R", "Q"];

const grouped = (value) => value.toString().replace(/\B(?=(\d{3})+(?!\d))/g, ",");

// above / below to the nearest whole number; a half goes up.
const nearest = (above, below) => (above * 2n + below) / (2n * below);

// A value of 1 to 1000 with four digits.
function fourDigits(above, below) {
  const before = (above / below).toString().length;
  let places = Math.max(0, 4 - before);
  let whole = nearest(above * 10n ** BigInt(places), below);
  if (whole.toString().length > before + places) {
    places = Math.max(0, places - 1);
    whole /= 10n;
  }
  const text = whole.toString();
  return places ? `${text.slice(0, -places)}.${text.slice(-places)}` : text;
}

function figure(value, unit) {
  if (value < 0n) return `-${figure(-value, unit)}`;
  let step = Math.floor((value.toString().length - 1) / 3);
  if (step === 0) return `${value} ${unit}`.trim();
  let scaled = fourDigits(value, 1000n ** BigInt(step));
  if (scaled === "1000") [step, scaled] = [step + 1, "1.000"];
  const prefix = step < PREFIXES.length ? PREFIXES[step] : `e${3 * step} `;
  return `${scaled} ${prefix}${unit}`.trim();
}

function decimal(above, below, places) {
  const digits = nearest(above * 10n ** BigInt(places), below).toString().padStart(places + 1, "0");
  return `${grouped(digits.slice(0, -places))}.${digits.slice(-places)}`;
}

const percent = (part, whole) => (whole === 0n ? "-" : `${decimal(part * 100n, whole, 1)}%`);
const ratio = (part, whole) => (whole === 0n ? "-" : decimal(part, whole, 2));

// above / below seconds.
function seconds(above, below) {
  for (const [unit, scale] of [["s", 1n], ["ms", 1000n], ["µs", 1000000n], ["ns", 1000000000n]]) {
    const scaled = above * scale;
    if (scaled >= below || unit === "ns") {
      const places = scaled < 10n * below ? 3 : scaled < 100n * below ? 2 : 1;
      return `${decimal(scaled, below, places)} ${unit}`;
    }
  }
  return "";
}

// A float of a quotient of any size, for plots.
function float(above, below) {
  if (above === 0n) return 0;
  const shift = BigInt(bits(above) - bits(below) - 60);
  const scaled = shift < 0n ? (above << -shift) / below : above / (below << shift);
  return Number(scaled) * 2 ** Number(shift);
}
