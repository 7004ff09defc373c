"use strict";
// The learning curves. One legend for all panels: a row a method with its values under the pointer, or else at the end; a
// click on a method hides it in all panels. The page is complete without it: then, and on paper, the drawn figure is
// shown, which has the same lines, bands and marks.
for (const place of document.querySelectorAll(".plot")) {
  const {panels, unit, budgets, end} = JSON.parse(place.dataset.curves);
  const ink = () => getComputedStyle(place).color;
  const faint = () => getComputedStyle(place).borderTopColor;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const lit = (part) => Math.round(dark.matches ? .6 * parseInt(part, 16) + .4 * 255 : parseInt(part, 16));
  const shade = (colour) => `rgb(${colour.match(/[0-9A-Fa-f]{2}/g).map(lit)})`;  // lighter on a dark page
  const grid = {stroke: faint, width: 1};
  const room = place.parentElement.clientWidth;
  const fit = room < 600 ? 1 : Math.floor(room / 180);
  const across = Math.ceil(panels.length / Math.ceil(panels.length / fit));  // rows of about the same length
  const element = (tag, text, parent) => parent.appendChild(Object.assign(document.createElement(tag), {textContent: text}));
  const legend = document.createElement("table");
  const head = element("tr", "", element("thead", "", legend));
  const moment = element("th", "", head);
  panels.forEach(({title}) => element("th", title, head));
  const rows = new Map();  // by method: its button, and its values' cells by panel
  const valued = (chart) => {
    const index = chart.cursor.idx ?? chart.data[0].length - 1, panel = charts.indexOf(chart);
    moment.textContent = chart.cursor.idx == null ? "at the end, %" : `at ${chart.data[0][index].toFixed(1)} ${unit}, %`;
    chart.series.slice(1).forEach(({label}, i) => {
      const before = chart.data[i + 1].slice(0, index + 1).filter((value) => value != null);
      rows.get(label).cells[panel].textContent = before.length ? before[before.length - 1].toFixed(1) : "–";
    });
  };
  const traced = (chart, points) => points.forEach(([x, y], i) =>
    chart.ctx[i ? "lineTo" : "moveTo"](chart.valToPos(x, "x", true), chart.valToPos(y, "y", true)));
  const drawn = (chart, draw) => {
    chart.ctx.save();
    draw(chart.ctx, chart.bbox, devicePixelRatio);
    chart.ctx.restore();
  };
  const below = (chart, panel) => drawn(chart, (ctx, box, scale) => {  // budgets, the untrained model, bands
    ctx.beginPath();
    ctx.rect(box.left, box.top, box.width, box.height);
    ctx.clip();
    ctx.font = `${10 * scale}px sans-serif`;
    ctx.textAlign = "center";
    ctx.lineWidth = scale;
    ctx.fillStyle = ctx.strokeStyle = ink();
    for (const [name, x] of budgets) {
      ctx.setLineDash([scale, 2 * scale]);
      ctx.beginPath();
      traced(chart, [[x, chart.scales.y.min], [x, chart.scales.y.max]]);
      ctx.globalAlpha = .45;
      ctx.stroke();
      ctx.globalAlpha = .7;
      ctx.fillText(name, Math.min(chart.valToPos(x, "x", true), box.left + box.width - ctx.measureText(name).width), box.top + 9 * scale);
    }
    if (panel.base != null) {
      ctx.setLineDash([5 * scale, 3 * scale]);
      ctx.beginPath();
      traced(chart, [[0, panel.base], [end, panel.base]]);
      ctx.stroke();
    }
    ctx.globalAlpha = .14;
    panel.lines.forEach((line, i) => {
      if (!line.low || !chart.series[i + 1].show) return;
      const ends = (values) => line.x.map((x, j) => [x, values[j]]).filter(([, y]) => y != null);
      ctx.fillStyle = shade(line.colour);
      ctx.beginPath();
      traced(chart, [...ends(line.low), ...ends(line.high).reverse()]);
      ctx.fill();
    });
  });
  const above = (chart, panel) => drawn(chart, (ctx, box, scale) => {  // crosses, also one at the edge
    const arm = 4 * scale;
    ctx.lineWidth = 2 * scale;
    ctx.setLineDash([]);
    panel.lines.forEach((line, i) => {
      if (!chart.series[i + 1].show) return;
      ctx.strokeStyle = shade(line.colour);
      ctx.beginPath();
      for (const [x, y] of line.alarms || []) {
        const [left, top] = [chart.valToPos(x, "x", true), chart.valToPos(y, "y", true)];
        for (const side of [-arm, arm]) { ctx.moveTo(left - arm, top - side); ctx.lineTo(left + arm, top + side); }
      }
      ctx.stroke();
    });
  });
  const shown = (panel) => [panel.base, ...panel.lines.flatMap(({y, low = [], high = [], alarms = []}) => [...y, ...low, ...high, ...alarms.map((cross) => cross[1])])];
  const values = panels.flatMap(shown).filter((value) => value != null);
  const range = [Math.max(-3, Math.min(...values) - 3), Math.min(103, Math.max(...values) + 3)];  // the same in all panels
  let charts;
  const named = {labelSize: 14, labelGap: 0, labelFont: "11px sans-serif"};
  charts = panels.map((panel, number) => {
    const lines = panel.lines.map(({name, colour, dash}) => ({label: name, stroke: () => shade(colour), dash, width: 2, spanGaps: true}));
    const options = {
      title: panel.title,
      width: Math.min(Math.floor(room / across) - 8, 640),
      height: across < 3 && room >= 600 ? 260 : 150,
      cursor: {y: false, sync: {key: "curves"}},
      legend: {show: false},
      scales: {
        x: {time: false, range: [0, end]},
        y: {range},
      },
      axes: [
        {stroke: ink, grid, size: 26, space: 30, label: `training clock, ${unit}`, ...named, incrs: [.1, .2, .5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000]},
        {stroke: ink, grid, size: 34, space: 20, label: number % across ? "" : "right, %", ...named},
      ],
      series: [{}, ...lines],
      hooks: {setCursor: [(chart) => charts && valued(chart)], drawAxes: [(chart) => below(chart, panel)], draw: [(chart) => above(chart, panel)]},
    };
    return new uPlot(options, uPlot.join(panel.lines.map((line) => [line.x, line.y])), place);
  });
  const body = element("tbody", "", legend);
  for (const {name, colour, dash} of panels.flatMap(({lines}) => lines)) {
    if (rows.has(name)) continue;
    const row = element("tr", "", body), button = element("button", "", element("th", "", row));
    button.type = "button";
    const swatch = element("i", "", button);
    swatch.style.borderTopStyle = !dash.length ? "solid" : dash[0] < 4 ? "dotted" : "dashed";
    button.append(name);
    rows.set(name, {swatch, colour, cells: panels.map(() => element("td", "–", row))});
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      const show = button.getAttribute("aria-pressed") === "false";
      button.setAttribute("aria-pressed", show);
      row.classList.toggle("off", !show);
      charts.forEach((chart) => chart.series.forEach(({label}, i) => { if (i && label === name) chart.setSeries(i, {show}); }));
    });
  }
  const foot = element("tfoot", "", legend);
  const footer = (name, values) => {
    const row = element("tr", "", foot);
    element("th", name, row);
    panels.forEach((panel) => element("td", values(panel), row));
  };
  if (panels.some(({base}) => base != null)) footer("╌╌ untrained", ({base}) => base == null ? "–" : base.toFixed(1));
  const crosses = ({lines}) => lines.reduce((sum, {alarms = []}) => sum + alarms.length, 0);
  if (panels.some(crosses)) footer("× runs with an alarm", (panel) => crosses(panel) || "–");
  const coloured = () => rows.forEach(({swatch, colour}) => { swatch.style.borderTopColor = shade(colour); });
  const keys = element("div", "", place);
  keys.className = "keys";
  keys.append(legend);
  coloured();
  charts.forEach(valued);
  place.closest("figure").classList.add("live");
  dark.addEventListener("change", () => { coloured(); charts.forEach((chart) => chart.redraw()); });
}
