"""The CSS and the script of the report, inlined so that the page loads nothing from elsewhere."""

CSS = """
:root { --ink: #1c2430; --soft: #5b6675; --line: #dde2e8; --back: #ffffff; --box: #f5f7f9; --mark: #2f6fde; --warm: #e08a2e; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6eaf0; --soft: #9aa6b5; --line: #313a46; --back: #14181e; --box: #1c222a; --mark: #6ea2ff; --warm: #f0a860; }
}
* { box-sizing: border-box; }
body { margin: 0; font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); }
main { max-width: 1180px; margin: 0 auto; padding: 0 24px 80px; }
header { border-bottom: 1px solid var(--line); padding: 28px 0 16px; }
h1 { font-size: 26px; margin: 0 0 4px; }
h2 { font-size: 19px; margin: 40px 0 10px; padding-top: 8px; }
nav { position: sticky; top: 0; background: var(--back); border-bottom: 1px solid var(--line); padding: 8px 0; z-index: 1; }
nav a { display: inline-block; margin-right: 18px; }
p, .soft { color: var(--soft); margin: 4px 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 18px; margin: 12px 0 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
code, pre, .mono { font: 12.5px/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
pre { background: var(--box); border: 1px solid var(--line); border-radius: 6px; padding: 10px 12px; margin: 6px 0; }
pre { overflow: auto; max-height: 460px; }
table { border-collapse: collapse; width: 100%; }
th { text-align: left; font-weight: 600; color: var(--soft); white-space: nowrap; }
th { border-bottom: 1px solid var(--line); padding: 4px 10px 4px 0; }
td { border-bottom: 1px solid var(--line); padding: 3px 10px 3px 0; vertical-align: top; overflow-wrap: anywhere; }
td.n, th.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
a { color: var(--mark); text-decoration: none; }
.scroll { overflow-x: auto; }
.bar { display: inline-block; width: 120px; height: 9px; background: var(--box); border-radius: 3px; vertical-align: middle; }
.bar i { display: block; height: 100%; background: var(--warm); border-radius: 3px; }
summary { cursor: pointer; padding: 2px 0; }
.row { display: flex; gap: 10px; align-items: baseline; }
summary.row::before { content: "\\25b8"; width: 10px; color: var(--soft); }
[open] > summary.row::before { content: "\\25be"; }
.row .time { margin-left: auto; width: 280px; flex: none; text-align: right; color: var(--soft); font-variant-numeric: tabular-nums; }
.row .time b { display: inline-block; width: 60px; font-weight: normal; }
.tree details, .tree div.row { margin-left: 9px; border-left: 1px solid var(--line); padding-left: 9px; }
.tree > details { margin-left: 0; border: 0; padding: 0; }
.kernel { border: 1px solid var(--line); border-radius: 8px; padding: 6px 14px; margin: 8px 0; }
.kernel > summary strong { overflow-wrap: anywhere; }
.kernel > summary .shapes { flex: 1 1 0; overflow: hidden; text-overflow: ellipsis; }
svg { width: 100%; height: auto; background: var(--box); border: 1px solid var(--line); border-radius: 6px; margin-top: 8px; }
svg text { font: 12px system-ui, sans-serif; fill: var(--soft); }
.grid { stroke: var(--line); } .live { fill: none; stroke: var(--ink); stroke-width: 1.5; }
input { font: inherit; color: inherit; background: var(--box); border: 1px solid var(--line); border-radius: 6px; }
input { padding: 4px 10px; width: 280px; margin: 6px 0; max-width: 100%; }
.row .soft { white-space: nowrap; margin: 0; }
.kernel[open] > summary .shapes { white-space: normal; }
@media (max-width: 700px) {
  main { padding: 0 14px 60px; }
  dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: 6px; }
  .row { flex-wrap: wrap; gap: 0 8px; }
  .row .time { width: auto; }
  .bar { width: 56px; }
  .tree details, .tree div.row { margin-left: 3px; padding-left: 7px; }
  table { min-width: 860px; }
  svg { min-width: 640px; }
}
"""

SCRIPT = """
document.getElementById("filter").addEventListener("input", function () {
  const wanted = this.value.toLowerCase();
  for (const row of document.querySelectorAll("#launches tbody tr")) row.hidden = !row.textContent.toLowerCase().includes(wanted);
});
function openTarget() {
  const found = location.hash && document.getElementById(location.hash.slice(1));
  if (found && found.tagName === "DETAILS") found.open = true;
}
addEventListener("hashchange", openTarget);
openTarget();
"""
