// CPU loop nests that lead to tiling: the GPU counterpart of each loop, memory traffic and time.

function drawLoops(app) {
  const { side, tile, nests } = app.catalog.loops;
  const titles = { ijk: "1. The definition", kij: "2. k outermost", split: "3. Every loop split by T", tiled: "4. Reordered: tiles outside, elements inside" };
  const rows = nests.map((nest, i) => `<tr><th>${i + 1}. ${nest.name}</th><td>${grouped(nest.reads)}</td><td>${grouped(nest.writes)}</td><td>${grouped(nest.misses[0])}</td><td>${grouped(nest.misses[1])}</td><td>${nest.milliseconds.toFixed(1)}</td></tr>`);
  const sections = nests.map((nest) => `<h2>${titles[nest.name]}</h2><div class="code" tabindex="0" aria-label="Source of ${nest.name}"><pre>${escaped(nest.source)}</pre></div>`
    + `<div class="scroll" tabindex="0" aria-label="Loops of ${nest.name}"><table class="prose"><thead><tr><th>loop</th><th>on a GPU</th></tr></thead><tbody>`
    + nest.loops.map((of) => `<tr><th class="mono">${escaped(of.name)}</th><td>${escaped(of.becomes)}</td></tr>`).join("") + "</tbody></table></div>");
  app.show("view", `<h2>${side}×${side}×${side}, f32, T = ${tile}, on one core</h2><div class="scroll" tabindex="0" aria-label="Costs of the nests"><table><thead><tr><th>nest</th><th>reads</th><th>writes</th><th>misses of 48 KiB</th><th>misses of 2 MiB</th><th>ms</th></tr></thead><tbody>${rows.join("")}</tbody></table></div>`
    + `<p class="faint">Reads and writes are in elements; an element that the next product uses again stays in a register. Misses are those of a cache model with 64-byte lines. Times were measured on the machine that generated this page. In all four nests k ascends for every element, so all give the same bits. Nest 2 can be fast on a CPU although it misses most, since its inner loop runs along rows and is vectorized.</p>`
    + sections.join(""));
}
