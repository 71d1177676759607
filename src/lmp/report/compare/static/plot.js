// Lines of several models over one size, drawn as SVG on two logarithmic axes.

const SVG = "http://www.w3.org/2000/svg";

function drawn(tag, attributes = {}, ...inside) {
  const found = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) found.setAttribute(name, String(value));
  found.append(...inside);
  return found;
}

const COLOURS = 8; // --line-0 to --line-7 of compare.css; further lines are dashed
const EDGE = { left: 66, right: 14, top: 10, bottom: 40 };

const lineStyle = (place) => ({ stroke: `var(--line-${place % COLOURS})`, "stroke-width": 2, "stroke-dasharray": place < COLOURS ? "none" : "6 4", fill: "none" });

// 1, 2 and 5 times a power of ten between two values; powers alone where there are many.
function ticksOf(low, high) {
  const found = [];
  const wide = Math.log10(high / low) > 3;
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const step of wide ? [1] : [1, 2, 5]) {
      const at = step * 10 ** power;
      if (at >= low * 0.999 && at <= high * 1.001) found.push(at);
    }
  }
  return found;
}

const PREFIXED = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
function tickText(value) {
  const [scale, prefix] = PREFIXED.find(([least]) => value >= least * 0.999) || [1, ""];
  return `${Number((value / scale).toPrecision(3))}${prefix}`;
}

const sizeText = (size) => (size >= 1024 && size % 1024 === 0 ? `${size / 1024}k` : String(size));

class Plot {
  constructor(box) {
    this.box = box;
  }

  // ``lines``: name, place among the chosen, and points { x, y, low, high }. ``now``: the chosen size.
  show(lines, { xTitle, yTitle, now }) {
    const width = this.box.clientWidth;
    const height = width < 520 ? 300 : 360;
    const points = lines.flatMap((line) => line.points);
    this.box.replaceChildren();
    this.width = width;
    if (!points.length) {
      this.box.append(made("p", { class: "quiet" }, "There is nothing to draw at these sizes: the notes below say why."));
      return;
    }
    const xs = points.map(({ x }) => x);
    const ys = points.flatMap(({ y, low, high }) => [y, low, high]).filter((y) => y > 0);
    const [left, right] = [Math.min(...xs), Math.max(...xs)];
    const [least, most] = [Math.min(...ys) / 1.1, Math.max(...ys) * 1.1];
    const part = (value, from, to) => (to > from ? Math.log(value / from) / Math.log(to / from) : 0.5);
    const x = (value) => EDGE.left + part(value, left, right) * (width - EDGE.left - EDGE.right);
    const y = (value) => height - EDGE.bottom - part(value, least, most) * (height - EDGE.top - EDGE.bottom);
    const svg = drawn("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${yTitle} over ${xTitle} of ${lines.map(({ name }) => name).join(", ")}` });
    this.axes(svg, { x, y, width, height, xTitle, yTitle, xTicks: [...new Set(xs)].sort((a, b) => a - b), yTicks: ticksOf(least, most) });
    if (now >= left && now <= right) svg.append(drawn("line", { x1: x(now), x2: x(now), y1: EDGE.top, y2: height - EDGE.bottom, class: "now" }));
    for (const line of lines) this.line(svg, line, x, y);
    this.box.append(svg);
  }

  axes(svg, { x, y, width, height, xTitle, yTitle, xTicks, yTicks }) {
    const every = Math.ceil(xTicks.length / Math.max(2, Math.floor((width - EDGE.left) / 48)));
    xTicks.forEach((tick, place) => {
      svg.append(drawn("line", { x1: x(tick), x2: x(tick), y1: EDGE.top, y2: height - EDGE.bottom, class: "grid" }));
      if (place % every === 0) svg.append(drawn("text", { x: x(tick), y: height - EDGE.bottom + 16, "text-anchor": "middle" }, sizeText(tick)));
    });
    for (const tick of yTicks) {
      svg.append(drawn("line", { x1: EDGE.left, x2: width - EDGE.right, y1: y(tick), y2: y(tick), class: "grid" }));
      svg.append(drawn("text", { x: EDGE.left - 6, y: y(tick) + 4, "text-anchor": "end" }, tickText(tick)));
    }
    svg.append(drawn("text", { x: (EDGE.left + width - EDGE.right) / 2, y: height - 6, "text-anchor": "middle" }, xTitle));
    const middle = (EDGE.top + height - EDGE.bottom) / 2;
    svg.append(drawn("text", { x: 14, y: middle, "text-anchor": "middle", transform: `rotate(-90 14 ${middle})` }, yTitle));
  }

  line(svg, { name, place, points, written: text }, x, y) {
    const path = (found) => found.map(([a, b], index) => `${index ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join(" ");
    const band = points.filter(({ low, high }) => low > 0 && high > 0);
    if (band.length > 1) {
      const around = [...band.map((one) => [one.x, one.low]), ...band.toReversed().map((one) => [one.x, one.high])];
      svg.append(drawn("path", { d: `${path(around)} Z`, fill: `var(--line-${place % COLOURS})`, "fill-opacity": 0.12 }));
    }
    svg.append(drawn("path", { d: path(points.map((one) => [one.x, one.y])), ...lineStyle(place), "data-line": name }));
    for (const one of points) {
      const dot = drawn("circle", { cx: x(one.x), cy: y(one.y), r: 3, fill: `var(--line-${place % COLOURS})` });
      dot.append(drawn("title", {}, `${name}, ${sizeText(one.x)}: ${text(one.y)}`));
      svg.append(dot);
    }
  }
}
