// A warp's request by lane: the 32-byte sectors of global memory, or the 32 banks of shared memory.

function drawMemory(app, frame) {
  const { model, block, thread } = app, warp = Math.floor(thread / 32);
  const ticks = requests(app, block, warp);
  if (!ticks.length) return app.show("view", "<p>This warp does not access memory.</p>");
  // The request of this tick, or the previous one.
  const tick = ticks.filter((at) => at <= frame.tick).at(-1) ?? ticks[0];
  const event = model.at(block, tick).find((event) => event.warp === warp);
  const { kind, memory, ty } = model.operation(tick), [space, access] = kind.split("-");
  const thing = space === "global" ? model.header.matrices[memory] : model.header.shared[memory];
  const heading = `Warp ${warp}: ${access} ${access === "load" ? "from" : "to"} ${thing.name}, ${space} memory`;
  const note = tick === frame.tick ? "" : `<p class="faint">The previous request of this warp; the current tick has none.</p>`;
  const drawn = event.elements.length === 0 ? "<p>No lane is active: all elements are out of bounds.</p>"
    : space === "global" ? sectors(app, event, thing, SIZES[ty], thread % 32) : banks(app, event, thing, SIZES[ty], thread % 32);
  const at = ticks.indexOf(tick);
  const jump = (to, text) => `<button type="button" data-tick="${ticks[to] ?? ""}" ${ticks[to] === undefined ? "disabled" : ""}>${text}</button>`;
  app.show("view", `<h2>${heading}</h2>${note}<p class="row">${jump(at - 1, "‹ previous request")} ${jump(at + 1, "next request ›")} <span class="faint">${at + 1} of ${ticks.length}</span></p>${drawn}`);
}

function requests(app, block, warp) {
  const { model } = app;
  const all = (model.ofBlock.get(block.join()) ?? []).filter((event) => event.warp === warp && /load|store/.test(model.operation(event.tick).kind));
  return [...new Set(all.map((event) => event.tick))];
}

// Lanes above, memory below, and a wire from each lane to its element.
function wired(lanes, mine, width, place, below, height) {
  const step = (width - 8) / 32, x = (lane) => 4 + step * (lane + .5), top = 26, bottom = 84;
  let svg = "";
  lanes.forEach((lane, i) => {
    const [px, py] = place(i);
    svg += `<path class="wires${lane === mine ? " mine" : ""}" d="M${x(lane)} ${top}C${x(lane)} ${top + 30} ${px} ${bottom - 30 + py} ${px} ${bottom + py}"/>`;
  });
  for (let lane = 0; lane < 32; lane++) {
    const there = lanes.includes(lane);
    svg += rect(x(lane) - step / 2 + 1, 6, step - 2, 20, `cell ${there ? "held" : ""} ${lane === mine ? "mine" : ""}`, `lane ${lane}${there ? "" : ": inactive"}`, ` data-lane="${lane}"`);
    if (step >= 14) svg += words(x(lane), 16, Math.min(11, step * .6), lane);
  }
  return `<svg class="s" viewBox="0 0 ${width} ${bottom + height}" width="${width}" role="img" aria-label="The element of each lane">${svg}<g transform="translate(0 ${bottom})">${below}</g></svg>`;
}

function sectors(app, event, matrix, size, mine) {
  const lanes = lanesOf(event), cols = matrix.shape[2], rows = matrix.shape[1];
  const address = (element) => {
    const row = Math.floor(element / cols) % rows, col = element % cols, batch = Math.floor(element / cols / rows);
    return size * (batch * matrix.strides[0] + row * matrix.strides[1] + col * matrix.strides[2]);
  };
  const bytes = event.elements.map(address), numbers = [...new Set(bytes.map((byte) => Math.floor(byte / 32)))].sort((a, b) => a - b);
  const width = Math.max(300, app.width("view")), each = Math.floor(32 / size), wide = numbers.length <= 8 ? 1 : 4;
  const across = Math.min(numbers.length, wide === 1 ? 4 : 16), box = (width - 8) / Math.max(across, 4) - 6, cell = box / each, line = 46;
  const corner = (at) => [4 + at % across * (box + 6), Math.floor(at / across) * line];
  let below = "";
  const wanted = new Set(bytes.map((byte) => byte / size));
  numbers.forEach((sector, at) => {
    const [x, y] = corner(at);
    for (let i = 0; i < each; i++) {
      const used = wanted.has(sector * each + i);
      below += rect(x + i * cell, y, cell, 20, `cell ${used ? "busy" : ""}`, `bytes ${sector * 32 + i * size} to ${sector * 32 + (i + 1) * size - 1}${used ? "" : ": moved, not used"}`);
    }
    below += `<rect x="${x}" y="${y}" width="${box}" height="20" fill="none" stroke="var(--ink)" stroke-width="2"/>`;
    if (box >= 60) below += words(x + box / 2, y + 31, 11, `bytes ${sector * 32}–${sector * 32 + 31}`, "label");
  });
  const place = (i) => {
    const [x, y] = corner(numbers.indexOf(Math.floor(bytes[i] / 32)));
    return [x + (bytes[i] % 32 / size + .5) * cell, y];
  };
  const height = Math.ceil(numbers.length / across) * line, distinct = new Set(event.elements).size;
  const used = distinct * size, moved = event.transactions * 32;
  const apart = bytes.length > 1 ? Math.abs(bytes[1] - bytes[0]) : 0;
  // The most lanes of a sector: 1 where each lane needs a sector of its own.
  const sharing = Math.max(...numbers.map((sector) => bytes.filter((byte) => Math.floor(byte / 32) === sector).length));
  const why = event.transactions <= Math.ceil(used / 32) ? "The lanes' elements are adjacent, or the same: no request for them takes fewer sectors. The request is coalesced."
    : apart >= 32 ? `Adjacent lanes access elements ${apart} bytes apart, so in different sectors. ${sharing === 1 ? "Each lane needs a sector of its own" : `At most ${sharing} lanes share a sector`}; ${grouped(moved - used)} bytes are moved in vain.`
      : `The lanes' elements are in several rows, or start inside a sector; ${grouped(moved - used)} bytes are moved in vain.`;
  return `<p><strong>${plural(lanes.length, "lane")}, ${plural(distinct, "element")}, ${plural(event.transactions, "sector")}.</strong> ${grouped(moved)} bytes are moved, ${grouped(used)} are used. ${why}</p>`
    + wired(lanes, mine, width, place, below, height);
}

function banks(app, event, array, size, mine) {
  const lanes = lanesOf(event), width = Math.max(300, app.width("view")), step = (width - 8) / 32;
  const first = event.elements.map((element) => (array.start + element * size) / 4);
  const wordsOf = first.map((word) => Array.from({ length: Math.max(1, size / 4) }, (_, i) => Math.floor(word) + i));
  const rows = [...new Set(wordsOf.flat().map((word) => Math.floor(word / 32)))].sort((a, b) => a - b);
  const requested = new Set(wordsOf.flat()), ofBank = new Map();
  for (const word of requested) ofBank.set(word % 32, (ofBank.get(word % 32) ?? 0) + 1);
  const line = rows.length > 8 ? 14 : 22;
  let below = "";
  rows.forEach((row, r) => {
    for (let bank = 0; bank < 32; bank++) {
      const word = row * 32 + bank, crowded = event.conflicts > 0 && ofBank.get(bank) > 1 && requested.has(word);
      below += rect(4 + bank * step, r * line, step, line - 2, `cell ${crowded ? "bad" : requested.has(word) ? "busy" : ""}`, `bank ${bank}, bytes ${word * 4} to ${word * 4 + 3}`);
    }
  });
  for (let bank = 0; bank < 32; bank++) if (step >= 14) below += words(4 + (bank + .5) * step, rows.length * line + 9, Math.min(11, step * .6), bank, "label");
  below += words(4, rows.length * line + 26, 11, "banks 0 to 31, 4 bytes each; a row is 128 bytes", "left label");
  const place = (i) => [4 + (wordsOf[i][0] % 32 + .5) * step, rows.indexOf(Math.floor(wordsOf[i][0] / 32)) * line];
  const worst = [...ofBank].reduce((most, bank) => bank[1] > most[1] ? bank : most, [0, 0]);
  const crowd = lanes.filter((_, i) => wordsOf[i].some((word) => word % 32 === worst[0]));
  const why = event.conflicts > 0 && size === 8 ? `Elements of 8 bytes take two banks each, so half a warp is served at a time; ${plural(event.conflicts, "wavefront")} due to bank conflicts: lanes of a half access different words of one bank.`
    : event.conflicts > 0
    ? `Lanes ${crowd.slice(0, 8).join(", ")}${crowd.length > 8 ? " …" : ""} access ${plural(worst[1], "different word")} of bank ${worst[0]}. A bank delivers one word per wavefront, so ${plural(event.conflicts, "wavefront")} ${event.conflicts === 1 ? "is" : "are"} due to bank conflicts.`
    : size === 8 ? "Elements of 8 bytes take two banks each, so a wavefront serves half a warp: no conflict."
    : requested.size < lanes.length ? "Lanes that access the same word get it in the same wavefront: no conflict." : "No bank has more than one word of the request: no conflict.";
  return `<p><strong>${plural(lanes.length, "lane")}, ${plural(event.transactions, "wavefront")}.</strong> ${why}</p>` + wired(lanes, mine, width, place, below, rows.length * line + 40);
}
