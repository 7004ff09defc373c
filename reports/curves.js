"use strict";
// The learning curves with values under the pointer; a click on a method's name hides it in all panels. The page is
// complete without it: then, and on paper, the drawn figure is shown.
for (const place of document.querySelectorAll(".plot")) {
  const {panels, unit} = JSON.parse(place.dataset.curves);
  const ink = () => getComputedStyle(place).color;
  const grid = {stroke: () => getComputedStyle(place).borderTopColor, width: 1};
  const room = place.parentElement.clientWidth;
  const across = room < 600 ? 1 : Math.min(panels.length, Math.floor(room / 180));
  const latest = (chart, value, series, index) => {
    while (index > 0 && chart.data[series][index] == null) index--;
    const found = index == null ? null : chart.data[series][index];
    return found == null ? "–" : `${found.toFixed(1)} %`;
  };
  const charts = panels.map((panel) => {
    const lines = panel.lines.map((line) => ({label: line.name, stroke: line.colour, width: 2, spanGaps: true, value: latest}));
    const options = {
      title: panel.title,
      width: Math.min(Math.floor(room / across) - 8, 420),
      height: 140,
      cursor: {y: false, sync: {key: "curves", setSeries: true}},
      legend: {markers: {width: 0, fill: (chart, series) => chart.series[series].stroke()}},
      scales: {x: {time: false}, y: {range: (chart, low, high) => [Math.max(0, low - 3), Math.min(100, high + 3)]}},
      axes: [{stroke: ink, grid, size: 28}, {stroke: ink, grid, size: 34}],
      series: [{label: `clock, ${unit}`, value: (chart, value) => value == null ? "–" : value.toFixed(1)}, ...lines],
    };
    return new uPlot(options, uPlot.join(panel.lines.map((line) => [line.x, line.y])), place);
  });
  place.closest("figure").classList.add("live");
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach((chart) => chart.redraw()));
}
