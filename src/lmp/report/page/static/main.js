// Puts the parts together. Figures follow at once; charts when the reader's hand rests.

const REST = 30; // milliseconds

function themed(draw) {
  const select = element("theme");
  const apply = () => {
    if (select.value) document.documentElement.dataset.theme = select.value;
    else delete document.documentElement.dataset.theme;
    draw();
  };
  select.addEventListener("change", apply);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

function begin() {
  const data = JSON.parse(element("data").textContent);
  const state = new State(data);
  const model = new Model(data);
  const controls = new Controls(state);
  const totals = new Totals(state, model);
  const table = new Table(state, model);
  const part = new Part(state, model);
  const source = new Source(state, model);
  const charts = [new Icicle(state, model), new Roofline(state, model)];
  let result = null;
  let waiting = 0;
  let resting = 0;

  const draw = () => {
    clearTimeout(resting);
    document.documentElement.dataset.charts = "waiting";
    resting = setTimeout(async () => {
      for (const chart of charts) await chart.show(result);
      // The box has a name; what is in it says nothing to a person who hears the page: the table has it all.
      for (const drawing of document.querySelectorAll("svg")) drawing.setAttribute("aria-hidden", "true");
      document.documentElement.dataset.charts = "drawn";
    }, REST);
  };
  const refresh = () => {
    waiting = 0;
    const began = performance.now();
    result = model.at(state.values, state.device);
    controls.show();
    showPoint(state);
    showIgnored(state);
    showHolding(state, result);
    totals.show(result);
    table.show(result);
    part.show(result);
    source.show(result);
    state.write();
    draw();
    document.documentElement.dataset.took = (performance.now() - began).toFixed(1);
  };
  state.listeners.push(() => {
    waiting = waiting || requestAnimationFrame(refresh);
  });
  table.chose = (index) => {
    part.show(result);
    source.result = result;
    source.choose(index);
  };
  charts[1].resized(() => draw());
  charts[0].clicked = (index) => table.reveal(index);
  window.addEventListener("hashchange", () => {
    state.start();
    state.readAddress(location.hash);
    state.changed();
  });
  themed(draw);
  refresh();
}

begin();
