for (const box of document.querySelectorAll(".table")) {
  const body = box.querySelector("tbody"), filter = box.querySelector(".filter"), top = box.querySelector(".top");
  const heads = [...box.querySelectorAll("th")];
  function show() {
    const wanted = filter ? filter.value.toLowerCase() : "";
    let left = top && top.checked ? 10 : Infinity;
    for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted) || left-- <= 0;
  }
  function sort(head) {
    const column = heads.indexOf(head), numbers = head.classList.contains("n");
    const isDown = head.ariaSort ? head.ariaSort === "ascending" : numbers; // the first click on numbers shows the largest
    const value = (row) => (numbers ? row.cells[column].dataset.v : row.cells[column].textContent);
    const order = (a, b) => (numbers ? a - b : a.localeCompare(b)) * (isDown ? -1 : 1);
    const [known, unknown] = [[], []];
    for (const row of body.rows) (value(row) === undefined ? unknown : known).push(row);
    body.append(...known.sort((a, b) => order(value(a), value(b))), ...unknown);
    for (const other of heads) other.ariaSort = null;
    head.ariaSort = isDown ? "descending" : "ascending";
    show();
  }
  for (const head of heads) head.querySelector("button")?.addEventListener("click", () => sort(head));
  filter?.addEventListener("input", show);
  top?.addEventListener("change", show);
  show();
}
function openTarget() {
  let target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  target.hidden = false; // a filter may have left its row out
  target.scrollIntoView();
}
addEventListener("hashchange", openTarget);
openTarget();
