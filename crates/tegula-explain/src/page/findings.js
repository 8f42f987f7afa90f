// Findings of the interpreter: errors and notes, with their tick, threads, element and lines.

function drawFindings(app) {
  const { model, entry } = app, { findings } = model.header;
  const list = findings.map((finding, i) => `<div class="finding ${finding.error ? "error" : ""}"><p><strong>${finding.error ? "Error" : "Note"}: ${escaped(finding.kind)}</strong>${finding.times > 1 ? `, ${grouped(finding.times)} times` : ""}</p><p>${escaped(withoutLines(finding))}</p>`
    + (finding.lines.length ? `<p class="faint mono">${finding.lines.map(([file, line]) => `${escaped(file.split("/").pop())}:${line}`).join(" and ")}</p>` : "")
    + (finding.tick === null ? "" : `<p><button type="button" data-finding="${i}">Go to its tick</button></p>`) + "</div>");
  const wrong = entry.wrong ? `<div class="finding error"><p><strong>Error: result</strong></p><p>${escaped(entry.wrong)}</p><p><button type="button" data-go="end">Go to the end</button></p></div>` : "";
  app.show("view", `<h2>Errors and notes</h2>${wrong}${list.join("") || (wrong ? "" : nothingFound(entry))}`
    + `<p class="faint">A race is two unordered accesses to one element, at least one of them a write. The interpreter finds it on every run, even if all threads are in one warp and the result is right.</p>`);
}

// The text for a kernel without errors and notes; an injected bug may have no effect.
function nothingFound({ mistake, m, n, k, tile }) {
  if (mistake) return `<p>No findings. The injected bug "${escaped(mistake)}" has no effect at ${m}×${n}×${k} with T = ${tile}: choose other extents or another tile.</p>`;
  return "<p>No findings. A barrier separates every write from other accesses to the same element, and every access is in bounds. Choose a bug above to see an error.</p>";
}

// The message without source lines, which are listed below it.
const withoutLines = ({ message }) => message.replace(/ \((?:[^()]*\.rs:\d+[^()]*)\)/g, "");
