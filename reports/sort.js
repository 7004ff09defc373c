"use strict";
// Sorts the rows between two headings by the column whose head is clicked; the page is complete without it.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  const key = (row, column) => {
    const cell = row.cells[column];
    const text = cell ? cell.textContent.trim() : "";
    const number = parseFloat(text.replace(/,/g, "").replace("−", "-"));
    return Number.isNaN(number) ? text : number;
  };
  const compare = (a, b) => {
    const missing = [a, b].map((value) => value === "" || value === "–");
    if (missing[0] || missing[1]) return missing[0] - missing[1];
    return typeof a === "number" && typeof b === "number" ? b - a : String(a).localeCompare(String(b));
  };
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const again = head.getAttribute("aria-sort") === "descending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", again ? "ascending" : "descending");
      const body = table.tBodies[0];
      const groups = [[]];
      for (const row of [...body.rows]) {
        if (row.classList.contains("heading")) groups.push([row]);
        else groups[groups.length - 1].push(row);
      }
      for (const group of groups) {
        const heading = group.filter((row) => row.classList.contains("heading"));
        // A row with spanning cells (the base model's) has no column of its own here: it stays on top.
        const fixed = group.filter((row) => !heading.includes(row) && row.cells.length < heads.length);
        const rest = group.filter((row) => !heading.includes(row) && !fixed.includes(row));
        rest.sort((a, b) => {
          const [x, y] = [key(a, column), key(b, column)];
          const order = compare(x, y);
          return again && x !== "" && y !== "" && x !== "–" && y !== "–" ? -order : order;
        });
        body.append(...heading, ...fixed, ...rest);
      }
    });
  });
}
