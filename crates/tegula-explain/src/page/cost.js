// Costs of kernels side by side.

const COUNTERS = [
  ["global_load_requests", "global load requests"],
  ["global_load_sectors", "global load sectors, 32 bytes each"],
  ["global_store_requests", "global store requests"],
  ["global_store_sectors", "global store sectors"],
  ["shared_load_wavefronts", "shared load wavefronts"],
  ["shared_store_wavefronts", "shared store wavefronts"],
  ["shared_bank_conflicts", "shared bank conflicts"],
  ["fma", "multiply-adds"],
  ["barriers", "barriers, one per warp"],
];

function drawCost(app) {
  const { catalog, entry } = app;
  const alike = catalog.entries.filter((e) => ["m", "n", "k", "dtype", "mapping"].every((key) => e[key] === entry[key]) && !e.mistake);
  const order = (e) => (e.family === "naive" ? 0 : 100) + e.tile;
  const shown = alike.sort((a, b) => order(a) - order(b));
  const most = Math.max(...shown.map((e) => e.counters.global_load_sectors));
  const outputs = entry.m * entry.n, assembled = shown.some((e) => e.assembled);
  const rows = shown.map((e) => {
    const c = e.counters;
    return `<tr class="${e.kernel === entry.kernel ? "now" : ""}"><th>${e.family}&nbsp;${e.tile}</th><td>${e.per_thread.global_loads}</td><td>${grouped(c.global_load_requests)}</td><td>${grouped(c.global_load_sectors)}</td>`
      + `<td style="text-align:left;min-width:6rem"><span class="bar" style="width:${(100 * c.global_load_sectors / most).toFixed(1)}%"></span></td><td>${grouped(wavefronts(c))}</td>${assembled ? `<td>${e.assembled ? grouped(wavefronts(c, e.assembled)) : "–"}</td>` : ""}<td>${grouped(c.shared_bank_conflicts)}</td><td>${e.barriers_per_block}</td><td>${intensity(c, entry.m * entry.n * entry.k).toFixed(2)}</td></tr>`;
  });
  app.show("view", `<h2>${entry.m}×${entry.n}×${entry.k}, ${entry.dtype}, thread x is the ${entry.mapping === "x-row" ? "row" : "column"}: naive and tiled</h2>`
    + `<p>Without tiles, each of the ${grouped(outputs)} elements of C takes 2·k = ${2 * entry.k} reads of global memory. With tiles of T×T it takes 2·⌈k/T⌉, and 2·T·⌈k/T⌉ reads of shared memory.</p>`
    + `<div class="scroll" tabindex="0" aria-label="Costs"><table><thead><tr><th>kernel, block</th><th>reads a thread</th><th>load requests</th><th colspan="2">L1 sectors of loads</th><th>shared wavefronts${assembled ? " as written</th><th>as assembled" : ""}</th><th>bank conflicts</th><th>barriers a block</th><th>flops per byte of L1</th></tr></thead><tbody>${rows.join("")}</tbody></table></div>`
    + `<p class="faint">Counted by running the kernels, as the Nsight Compute metrics of these names count. Flops are the useful 2·m·n·k, without zero-filled padding; bytes are sectors of loads and stores.${assembled ? " The assembler merges adjacent loads into a wide one, which takes fewer wavefronts." : ""} L2 and DRAM are not counted here: caches hold data that warps read again.</p>`
    + ladder(catalog.ladder) + catalog.devices.map(measured).join(""));
}

// Useful flops per byte of L1: padding beyond m, n and k does not count as work.
const intensity = (c, multiplyAdds) => 2 * multiplyAdds / (32 * (c.global_load_sectors + c.global_store_sectors));

// The ladder from the naive kernel to register tiles.
function ladder({ side, dtype, rungs }) {
  const same = rungs.filter(({ sizes }) => sizes.every((size) => size === side)), assembled = same.some((rung) => rung.assembled);
  const rows = same.map(({ name, counters: [c], assembled: a }) => `<tr><th>${escaped(name)}</th><td>${grouped(c.global_load_requests)}</td><td>${grouped(c.global_load_sectors)}</td><td>${grouped(wavefronts(c))}</td>${assembled ? `<td>${a ? grouped(wavefronts(c, a[0])) : "–"}</td>` : ""}<td>${c.shared_load_wavefronts ? (c.fma / (32 * c.shared_load_wavefronts)).toFixed(2) : "–"}</td><td>${intensity(c, side ** 3).toFixed(2)}</td></tr>`);
  return `<h2>From naive to register tiles: ${side}×${side}×${side}, ${dtype}</h2><div class="scroll" tabindex="0" aria-label="Ladder"><table><thead><tr><th>kernel</th><th>load requests</th><th>L1 sectors</th><th>shared wavefronts${assembled ? " as written</th><th>as assembled" : ""}</th><th>multiply-adds of a warp per load wavefront</th><th>flops per byte of L1</th></tr></thead><tbody>${rows.join("")}</tbody></table></div>`
    + "<p class=\"faint\">With one element per thread, each multiply-add takes two loads from shared memory, which is the limit. With an 8×4 tile of C in registers, a thread uses each loaded element several times.</p>";
}

// Measurements at a size that a page cannot trace.
function measured({ name, traffic: { dtype, side, tile, kernels, source } }) {
  const [naive, tiled] = ["naive", "tiled"].map((family) => kernels[`${family}_${dtype}_${tile}`]);
  const large = (value) => value >= 1e12 ? `${(value / 1e12).toPrecision(3)}\u00a0T` : value >= 1e9 ? `${(value / 1e9).toPrecision(3)}\u00a0G` : `${(value / 1e6).toPrecision(3)}\u00a0M`;
  const rows = [
    ["L1 sectors of loads", "l1_sectors", (fall) => `fall ${fall.toFixed(0)} times: a block reads each row of a tile once`],
    ["L2 sectors of reads", "l2_sectors", () => "do not fall: L1 held the data that warps of the naive kernel read again"],
    ["DRAM bytes read", "dram_bytes", () => "do not fall either"],
    ["operations a second", "speed", (fall) => `${(1 / fall).toFixed(1)} times as fast`],
  ];
  const of = (kernel, key) => key === "speed" ? kernel.tflops * 1e12 : kernel[key];
  return `<h2>Measured on an ${escaped(name)}: ${dtype}, ${side}³, blocks of ${tile}×${tile}</h2><div class="scroll" tabindex="0" aria-label="Measured"><table><thead><tr><th></th><th>naive</th><th>tiled</th><th></th></tr></thead><tbody>`
    + rows.map(([what, key, why]) => `<tr><th>${what}</th><td>${large(of(naive, key))}</td><td>${large(of(tiled, key))}</td><td style="text-align:left" class="faint">${why(of(naive, key) / of(tiled, key))}</td></tr>`).join("") + "</tbody></table></div>"
    + `<p class="faint">By ${escaped(source)}. Tiling saves requests and L1 traffic. Register tiles bring the next factor of ten: see the roofline.</p>`;
}
