"use strict";
// The learning curves with values under the pointer; a click on a method's name hides it in all panels. The page is
// complete without it: then, and on paper, the drawn figure is shown.
for (const place of document.querySelectorAll(".plot")) {
  const {panels, unit} = JSON.parse(place.dataset.curves);
  const ink = () => getComputedStyle(place).color;
  const grid = {stroke: () => getComputedStyle(place).borderTopColor, width: 1};
  const width = Math.max(215, Math.floor(place.parentElement.clientWidth / panels.length) - 8);
  const latest = (chart, value, series, index) => {
    while (index > 0 && chart.data[series][index] == null) index--;
    const found = index == null ? null : chart.data[series][index];
    return found == null ? "–" : `${found.toFixed(1)} %`;
  };
  const charts = panels.map((panel) => {
    const lines = panel.lines.map((line) => (
      {label: line.name, stroke: line.colour, dash: line.dash, width: 2, spanGaps: true, value: latest}
    ));
    const options = {
      title: panel.title,
      width: Math.min(width, 420, place.parentElement.clientWidth),
      height: 165,
      cursor: {sync: {key: "curves", setSeries: true}},
      scales: {x: {time: false}, y: {range: (chart, low, high) => [Math.max(0, low - 3), Math.min(100, high + 3)]}},
      axes: [{stroke: ink, grid}, {stroke: ink, grid, size: 34}],
      series: [{label: `clock, ${unit}`, value: (chart, value) => value == null ? "–" : value.toFixed(1)}, ...lines],
    };
    return new uPlot(options, uPlot.join(panel.lines.map((line) => [line.x, line.y])), place);
  });
  place.closest("figure").classList.add("live");
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach((chart) => chart.redraw()));
}
