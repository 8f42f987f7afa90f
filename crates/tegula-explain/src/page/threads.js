// The grid of blocks, the warps of the chosen block, and what each thread holds.

function drawThreads(app, frame, state) {
  const { scenes, block, thread } = app, { header } = scenes, [gx, gy] = header.grid;
  const width = app.width("view"), side = Math.max(6, Math.min(40, Math.floor((width - 4) / gx)));
  const active = new Map(frame.act < 0 || frame.slide ? [] : scenes.at(block, frame.moment).map((event) => [event.warp, event.lanes]));
  const blocks = `<svg class="c" viewBox="-2 -2 ${gx * side + 4} ${gy * side + 4}" width="${gx * side + 4}" role="img" aria-label="The grid of ${gx} by ${gy} blocks">`
    + grid(gy, gx, side, 0, 0, (y, x) => ({
      classes: x === block[0] && y === block[1] ? "busy" : "",
      text: gx * gy <= 64 ? `${x},${y}` : "",
      title: `block (${x}, ${y}); click to choose it`,
    }), (y, x) => ` data-block="${x},${y},0" style="cursor:pointer"`) + "</svg>";
  const warps = Math.ceil(scenes.threads / 32), lane = Math.max(5, Math.min(24, Math.floor((width - 76) / 32)));
  let rows = "";
  for (let warp = 0; warp < warps; warp++) {
    const y = warp * (lane + 4);
    rows += words(2, y + lane / 2, 12, `warp ${warp}`, "left label");
    for (let i = 0; i < 32; i++) {
      const linear = warp * 32 + i, there = linear < scenes.threads, busy = active.get(warp) >>> i & 1;
      const title = there ? `thread ${pair(scenes.thread(linear))}, lane ${i} of warp ${warp}${busy ? ", takes part now" : ""}` : "no thread: the block ends before the warp does";
      const classes = ["cell", busy && "busy", linear === thread && "mine", ...app.badThread(linear)].filter(Boolean).join(" ");
      rows += rect(66 + i * lane, y, lane, lane, classes, title, there ? ` data-thread="${linear}" style="cursor:pointer"` : ` fill-opacity=".15"`);
    }
  }
  const height = warps * (lane + 4);
  const lanes = `<svg class="s" viewBox="-2 -2 ${70 + 32 * lane} ${height + 4}" width="${70 + 32 * lane}" role="img" aria-label="${plural(warps, "warp")} of 32 lanes">${rows}</svg>`;
  const bytes = app.code()?.shared_bytes ?? 0, registers = app.code()?.registers, held = state.shared.reduce((sum, array) => sum + array.size, 0);
  const room = header.shared.reduce((sum, array) => sum + array.dims.reduce((a, b) => a * b), 0);
  app.show("view", `<h2>The grid: ${gx}×${gy} blocks</h2><p class="faint">Blocks run in any order, and know nothing of each other. Choose one.</p>${blocks}`
    + `<h2>Block ${pair(block)}: ${plural(scenes.threads, "thread")} in ${plural(warps, "warp")}</h2><p class="faint">The 32 lanes of a warp do the same operation at once. Thick edges take part in this moment.</p>${lanes}`
    + `<h2>What it has</h2><table><tr><th>shared memory</th><td>${grouped(bytes)} bytes; ${held} of ${room} elements hold a number</td></tr>`
    + `<tr><th>registers</th><td>${registers ? `${registers} a thread, as assembled for an H200; ` : ""}one sum a thread, ${state.sums.size} of ${scenes.threads} begun</td></tr>`
    + `<tr><th>room on a multiprocessor</th><td>${occupancy(scenes.threads, bytes, registers)}</td></tr></table>`);
}

// How many blocks a multiprocessor of an H200 holds. Registers, where they are known, are given to warps by 256.
function occupancy(threads, bytes, registers) {
  const warps = Math.ceil(threads / 32), ofWarp = Math.ceil((registers ?? 0) * 32 / 256) * 256;
  const limits = [
    ["its 32 places for blocks", 32],
    ["its 64 warps", Math.floor(64 / warps)],
    ["its 65,536 registers", ofWarp ? Math.floor(65536 / (ofWarp * warps)) : Infinity],
    ["its 233,472 bytes of shared memory", Math.floor(233472 / (bytes + 1024))],
  ];
  const [what, blocks] = limits.reduce((least, limit) => limit[1] < least[1] ? limit : least);
  return `${plural(blocks, "block")}, ${plural(blocks * threads, "thread")} of 2,048: limited by ${what} (H200)`;
}
