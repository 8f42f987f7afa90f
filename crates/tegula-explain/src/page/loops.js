// The loop nests that lead to tiles, on a processor: what each loop becomes on a GPU, and what the nests cost here.

function drawLoops(app) {
  const { side, tile, nests } = app.book.loops;
  const titles = { ijk: "1. The sum as it is defined", kij: "2. k outermost", split: "3. Every loop split by T", tiled: "4. Reordered: tiles outside, elements inside" };
  const rows = nests.map((nest, i) => `<tr><th>${i + 1}. ${nest.name}</th><td>${grouped(nest.reads)}</td><td>${grouped(nest.writes)}</td><td>${grouped(nest.misses[0])}</td><td>${grouped(nest.misses[1])}</td><td>${nest.milliseconds.toFixed(1)}</td></tr>`);
  const told = nests.map((nest) => `<h2>${titles[nest.name]}</h2><div class="code" tabindex="0" aria-label="Source of ${nest.name}"><pre>${escaped(nest.source)}</pre></div>`
    + `<div class="scroll" tabindex="0" aria-label="Loops of ${nest.name}"><table class="prose"><thead><tr><th>loop</th><th>on a GPU</th></tr></thead><tbody>`
    + nest.loops.map((of) => `<tr><th class="mono">${escaped(of.name)}</th><td>${escaped(of.becomes)}</td></tr>`).join("") + "</tbody></table></div>");
  app.show("view", `<h2>${side}×${side}×${side}, f32, T = ${tile}, on one core</h2><div class="scroll" tabindex="0" aria-label="What the nests cost"><table><thead><tr><th>nest</th><th>reads</th><th>writes</th><th>misses of 48 KiB</th><th>misses of 2 MiB</th><th>ms here</th></tr></thead><tbody>${rows.join("")}</tbody></table></div>`
    + `<p class="faint">Reads and writes are elements; an element that the next product uses again stays in a register. Misses are counted in a model of a cache with lines of 64 bytes, times were measured where this page was made. In all four, k ascends for every element, so all give the same bits. Nest 2 can be fast on a processor although it misses most, since its inner loop runs along rows and becomes vector instructions.</p>`
    + told.join(""));
}
