document.getElementById("filter").addEventListener("input", function () {
  const wanted = this.value.toLowerCase();
  for (const row of document.querySelectorAll("#launches tbody tr")) row.hidden = !row.textContent.toLowerCase().includes(wanted);
});
function openTarget() {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (target && target.tagName === "DETAILS") target.open = true;
}
addEventListener("hashchange", openTarget);
openTarget();
