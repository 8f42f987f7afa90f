// What the interpreter found: the moment, the threads, the element, the lines.

function drawMistakes(app) {
  const { scenes, entry } = app, { findings } = scenes.header;
  const told = findings.map((finding, i) => `<div class="finding ${finding.error ? "error" : ""}"><p><strong>${finding.error ? "Wrong" : "Note"}: ${escaped(finding.kind)}</strong>${finding.times > 1 ? `, ${grouped(finding.times)} times` : ""}</p><p>${escaped(plainly(finding))}</p>`
    + (finding.lines.length ? `<p class="faint mono">${finding.lines.map(([file, line]) => `${escaped(file.split("/").pop())}:${line}`).join(" and ")}</p>` : "")
    + (finding.moment === null ? "" : `<p><button type="button" data-finding="${i}">Go to where it happens</button></p>`) + "</div>");
  const wrong = entry.wrong ? `<div class="finding error"><p><strong>Wrong: result</strong></p><p>${escaped(entry.wrong)}</p><p><button type="button" data-go="end">Go to the end</button></p></div>` : "";
  app.show("view", `<h2>What is wrong with it</h2>${wrong}${told.join("") || (wrong ? "" : "<p>Nothing was found: every two accesses to one element, one of them a write, are kept apart by a barrier, and every access lies inside. Plant a mistake above to see one.</p>")}`
    + `<p class="faint">A race is two accesses to one element, one of them a write, that nothing orders. It is found on every run, also where all threads are one warp and the numbers come out right.</p>`);
}

// The message without its line numbers, which stand below it.
const plainly = ({ message }) => message.replace(/ \((?:[^()]*\.rs:\d+[^()]*)\)/g, "");
