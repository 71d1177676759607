// Formulas worked out exactly, as lmp.formula does: whole numbers are BigInt, what does not divide is a Fraction.
// NONE is what an operation gives where it has no value, as a division by zero, and all that is made of it.

const NONE = null;
const LIMIT = 1n << 13000n; // lmp.formula.MAX_BITS

class Fraction {
  constructor(above, below) {
    this.above = above;
    this.below = below;
  }

  // 0.53125, or 1/3 where the digits do not end: lmp.formula.number_text.
  toString() {
    const places = placesOf(this.below);
    if (places === null) return `${this.above}/${this.below}`;
    const sign = this.above < 0n ? "-" : "";
    const digits = (((sign ? -this.above : this.above) * 10n ** BigInt(places)) / this.below).toString().padStart(places + 1, "0");
    return `${sign}${digits.slice(0, -places)}.${digits.slice(-places)}`;
  }
}

const PLACES = 30;

// Digits behind the decimal point of 1 / below; null if they do not end, or are too many to be read.
function placesOf(below) {
  const count = (prime) => {
    let found = 0;
    for (; below % prime === 0n; below /= prime) found += 1;
    return found;
  };
  const places = Math.max(count(2n), count(5n));
  return below === 1n && places <= PLACES ? places : null;
}

function measured(value) {
  return value < LIMIT && value > -LIMIT ? value : NONE;
}

function gcd(a, b) {
  a = a < 0n ? -a : a;
  while (b) [a, b] = [b, a % b];
  return a;
}

function quotient(above, below) {
  if (below === 0n) return NONE;
  if (below < 0n) [above, below] = [-above, -below];
  if (above % below === 0n) return measured(above / below);
  const shared = gcd(above, below);
  above /= shared;
  below /= shared;
  return measured(above) === NONE || measured(below) === NONE ? NONE : new Fraction(above, below);
}

// Sums and products of what has been worked out: of any size, as BigInt's own are.
function reduced(above, below) {
  const shared = gcd(above, below);
  return below === shared ? above / shared : new Fraction(above / shared, below / shared);
}

const added = (a, b) => (isWhole(a) && isWhole(b) ? a + b : reduced(aboveOf(a) * belowOf(b) + aboveOf(b) * belowOf(a), belowOf(a) * belowOf(b)));
const scaled = (a, b) => (isWhole(a) && isWhole(b) ? a * b : reduced(aboveOf(a) * aboveOf(b), belowOf(a) * belowOf(b)));

// The numerator and the denominator of a / b.
const over = (a, b) => [aboveOf(a) * belowOf(b), belowOf(a) * aboveOf(b)];

const isWhole = (value) => typeof value === "bigint";
const aboveOf = (value) => (isWhole(value) ? value : value.above);
const belowOf = (value) => (isWhole(value) ? 1n : value.below);

function plus(a, b) {
  if (isWhole(a) && isWhole(b)) return measured(a + b);
  return quotient(aboveOf(a) * belowOf(b) + aboveOf(b) * belowOf(a), belowOf(a) * belowOf(b));
}

function times(a, b) {
  if (isWhole(a) && isWhole(b)) return measured(a * b);
  return quotient(aboveOf(a) * aboveOf(b), belowOf(a) * belowOf(b));
}

function divided(a, b) {
  return quotient(aboveOf(a) * belowOf(b), belowOf(a) * aboveOf(b));
}

// Rounded towards minus infinity; BigInt's own division goes towards zero.
function floored(above, below) {
  if (below < 0n) [above, below] = [-above, -below];
  const found = above / below;
  return above < 0n && above % below !== 0n ? found - 1n : found;
}

const floor = (a) => (isWhole(a) ? a : floored(a.above, a.below));
const ceil = (a) => (isWhole(a) ? a : floored(a.above, a.below) + 1n);

function floorDivided(a, b) {
  if (aboveOf(b) === 0n) return NONE;
  return measured(floored(aboveOf(a) * belowOf(b), belowOf(a) * aboveOf(b)));
}

function rest(a, b) {
  const whole = floorDivided(a, b);
  return whole === NONE ? NONE : plus(a, times(-1n, times(whole, b)));
}

function bits(value) {
  return (value < 0n ? -value : value).toString(2).length;
}

function power(base, exponent) {
  if (!isWhole(exponent)) return NONE;
  const [above, below] = [aboveOf(base), belowOf(base)];
  if (above === 0n && exponent < 0n) return NONE;
  const count = exponent < 0n ? -exponent : exponent;
  const larger = bits(above) > bits(below) ? bits(above) : bits(below);
  if (BigInt(larger - 1) * count > 13000n) return NONE;
  const raised = [above ** count, below ** count];
  return exponent < 0n ? quotient(raised[1], raised[0]) : quotient(raised[0], raised[1]);
}

// Below, at or above zero as a is less than, equal to or greater than b.
function compared(a, b) {
  const [left, right] = [aboveOf(a) * belowOf(b), aboveOf(b) * belowOf(a)];
  return left < right ? -1 : left > right ? 1 : 0;
}

const BINARY = {
  "*": times,
  "/": divided,
  "//": floorDivided,
  "%": rest,
  "**": power,
  "<": (a, b) => compared(a, b) < 0,
  "<=": (a, b) => compared(a, b) <= 0,
  ">": (a, b) => compared(a, b) > 0,
  ">=": (a, b) => compared(a, b) >= 0,
  "==": (a, b) => compared(a, b) === 0,
  "!=": (a, b) => compared(a, b) !== 0,
};

const FOLDED = {
  "+": plus,
  min: (a, b) => (compared(b, a) < 0 ? b : a),
  max: (a, b) => (compared(b, a) > 0 ? b : a),
};

// A part without a value matters only where it is reached.
function junction(found, enough) {
  for (const held of found) {
    if (held === NONE) return NONE;
    if (held === enough) return enough;
  }
  return !enough;
}

function worked(operation, found) {
  if (operation === "where") return found[0] === NONE ? NONE : found[0] ? found[1] : found[2];
  if (operation === "and" || operation === "or") return junction(found, operation === "or");
  if (found.includes(NONE)) return NONE;
  if (operation === "not") return !found[0];
  if (operation === "floor") return floor(found[0]);
  if (operation === "ceil") return ceil(found[0]);
  if (operation in BINARY) return BINARY[operation](found[0], found[1]);
  const fold = FOLDED[operation];
  return found.reduce((a, b) => (a === NONE ? NONE : fold(a, b)));
}

class Program {
  constructor({ names, constants, steps }) {
    this.names = names;
    this.steps = steps;
    this.constants = constants.map(([above, below]) =>
      below === undefined ? BigInt(above) : new Fraction(BigInt(above), BigInt(below)),
    );
  }

  // The value at every index: variables, constants, steps.
  run(values) {
    const found = [...this.names.map((name) => values[name]), ...this.constants];
    for (const [operation, ...operands] of this.steps) {
      found.push(worked(operation, operands.map((index) => found[index])));
    }
    return found;
  }
}
