// The grid, the warps of the selected block, and the resources of a block.

function drawThreads(app, frame, state) {
  const { model, block, thread } = app, { header } = model, [gx, gy] = header.grid;
  const width = app.width("view"), side = Math.max(6, Math.min(40, Math.floor((width - 4) / gx)));
  const active = new Map(frame.phase < 0 || frame.slide ? [] : model.at(block, frame.tick).map((event) => [event.warp, event.lanes]));
  const blocks = `<svg class="c" viewBox="-2 -2 ${gx * side + 4} ${gy * side + 4}" width="${gx * side + 4}" role="img" aria-label="The grid of ${gx} by ${gy} blocks">`
    + grid(gy, gx, side, 0, 0, (y, x) => ({
      classes: x === block[0] && y === block[1] ? "busy" : "",
      text: gx * gy <= 64 ? `${x},${y}` : "",
      title: `block (${x}, ${y}); click to select it`,
    }), (y, x) => ` data-block="${x},${y},0" style="cursor:pointer"`) + "</svg>";
  const warps = Math.ceil(model.threads / 32), lane = Math.max(5, Math.min(24, Math.floor((width - 76) / 32)));
  let rows = "";
  for (let warp = 0; warp < warps; warp++) {
    const y = warp * (lane + 4);
    rows += words(2, y + lane / 2, 12, `warp ${warp}`, "left label");
    for (let i = 0; i < 32; i++) {
      const linear = warp * 32 + i, there = linear < model.threads, busy = active.get(warp) >>> i & 1;
      const title = there ? `thread ${pair(model.thread(linear))}, lane ${i} of warp ${warp}${busy ? ", active" : ""}` : "no thread: the block has fewer threads than its warps have lanes";
      const classes = ["cell", busy && "busy", linear === thread && "mine", ...app.badThread(linear)].filter(Boolean).join(" ");
      rows += rect(66 + i * lane, y, lane, lane, classes, title, there ? ` data-thread="${linear}" style="cursor:pointer"` : ` fill-opacity=".15"`);
    }
  }
  const height = warps * (lane + 4);
  const lanes = `<svg class="s" viewBox="-2 -2 ${70 + 32 * lane} ${height + 4}" width="${70 + 32 * lane}" role="img" aria-label="${plural(warps, "warp")} of 32 lanes">${rows}</svg>`;
  const bytes = app.code()?.shared_bytes ?? 0, registers = app.code()?.registers, held = state.shared.reduce((sum, array) => sum + array.size, 0);
  const capacity = header.shared.reduce((sum, array) => sum + array.dims.reduce((a, b) => a * b), 0);
  app.show("view", `<h2>The grid: ${gx}×${gy} blocks</h2><p class="faint">Blocks run in any order, independently. Select one.</p>${blocks}`
    + `<h2>Block ${pair(block)}: ${plural(model.threads, "thread")} in ${plural(warps, "warp")}</h2><p class="faint">The 32 lanes of a warp execute each instruction together. Thick edges mark the active lanes.</p>${lanes}`
    + `<h2>Resources</h2><table><tr><th>shared memory</th><td>${grouped(bytes)} bytes; ${held} of ${capacity} elements initialized</td></tr>`
    + `<tr><th>registers</th><td>${registers ? `${registers} a thread, as assembled for an H200; ` : ""}one accumulator a thread, ${state.accumulators.size} of ${model.threads} in use</td></tr>`
    + `<tr><th>occupancy</th><td>${occupancy(model.threads, bytes, registers)}</td></tr></table>`);
}

// The blocks per SM of an H200. Registers, if known, are allocated to warps in units of 256.
function occupancy(threads, bytes, registers) {
  const warps = Math.ceil(threads / 32), ofWarp = Math.ceil((registers ?? 0) * 32 / 256) * 256;
  const limits = [
    ["32 blocks per SM", 32],
    ["64 warps per SM", Math.floor(64 / warps)],
    ["65,536 registers per SM", ofWarp ? Math.floor(65536 / (ofWarp * warps)) : Infinity],
    ["233,472 bytes of shared memory per SM", Math.floor(233472 / (bytes + 1024))],
  ];
  const [what, blocks] = limits.reduce((least, limit) => limit[1] < least[1] ? limit : least);
  return `${plural(blocks, "block")}, ${plural(blocks * threads, "thread")} of 2,048 per SM (H200); the limit is ${what}`;
}
