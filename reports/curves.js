"use strict";
// The learning curves with values under the pointer; a click on a method's name hides it in all panels. The page is
// complete without it: then, and on paper, the drawn figure is shown, which has the same lines, bands and marks.
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
  const latest = (chart, value, series, index) => {
    while (index > 0 && chart.data[series][index] == null) index--;
    const found = index == null ? null : chart.data[series][index];
    return found == null ? "–" : `${found.toFixed(1)} %`;
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
  const charts = panels.map((panel) => {
    const lines = panel.lines.map(({name, colour, dash}) => ({label: name, stroke: () => shade(colour), dash, width: 2, spanGaps: true, value: latest}));
    const options = {
      title: panel.title,
      width: Math.min(Math.floor(room / across) - 8, 420),
      height: 140,
      cursor: {y: false, sync: {key: "curves", setSeries: true}},
      legend: {markers: {width: 0, fill: (chart, series) => chart.series[series].stroke()}},
      scales: {
        x: {time: false, range: [0, end]},
        y: {range},
      },
      axes: [{stroke: ink, grid, size: 28, incrs: [.1, .2, .5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000]}, {stroke: ink, grid, size: 40, space: 20}],
      series: [{label: `clock, ${unit}`, value: (chart, value) => value == null ? "–" : value.toFixed(1)}, ...lines],
      hooks: {drawAxes: [(chart) => below(chart, panel)], draw: [(chart) => above(chart, panel)]},
    };
    return new uPlot(options, uPlot.join(panel.lines.map((line) => [line.x, line.y])), place);
  });
  place.closest("figure").classList.add("live");
  dark.addEventListener("change", () => charts.forEach((chart) => chart.redraw()));
}
