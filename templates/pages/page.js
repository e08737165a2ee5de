// Makes the heads of sortable tables into buttons; without JavaScript the tables stay as written.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const key = (row, column) => {
    const cell = row.cells[column];
    return "value" in cell.dataset ? Number(cell.dataset.value) : Number(row.dataset.order);
  };
  [...body.rows].forEach((row, order) => { row.dataset.order = order; });
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const sign = down ? -1 : 1;
      const rank = (row) => (Number.isNaN(key(row, column)) ? Infinity : sign * key(row, column));
      body.append(...[...body.rows].sort((a, b) => rank(a) - rank(b) || 0));
    });
  });
}
