// A warp's request, lane by lane: on the 32-byte sectors of global memory, or the 32 banks of shared memory.

function drawMemory(app, frame) {
  const { scenes, block, thread } = app, warp = Math.floor(thread / 32);
  const moments = requests(app, block, warp);
  if (!moments.length) return app.show("view", "<p>This warp touches no memory.</p>");
  // The request at hand, or the last one before.
  const moment = moments.filter((at) => at <= frame.moment).at(-1) ?? moments[0];
  const event = scenes.at(block, moment).find((event) => event.warp === warp);
  const { does, memory, ty } = scenes.operation(moment), [space, kind] = does.split("-");
  const thing = space === "global" ? scenes.header.matrices[memory] : scenes.header.shared[memory];
  const heading = `Warp ${warp}: ${kind} ${kind === "load" ? "from" : "to"} ${thing.name}, ${space} memory`;
  const note = moment === frame.moment ? "" : `<p class="faint">The last request of this warp; this moment makes none.</p>`;
  const drawn = event.elements.length === 0 ? "<p>No lane takes part: what they would take lies beyond the edge.</p>"
    : space === "global" ? sectors(app, event, thing, SIZES[ty], thread % 32) : banks(app, event, thing, SIZES[ty], thread % 32);
  const at = moments.indexOf(moment);
  const jump = (to, text) => `<button type="button" data-moment="${moments[to] ?? ""}" ${moments[to] === undefined ? "disabled" : ""}>${text}</button>`;
  app.show("view", `<h2>${heading}</h2>${note}<p class="row">${jump(at - 1, "‹ request before")} ${jump(at + 1, "request after ›")} <span class="faint">${at + 1} of ${moments.length}</span></p>${drawn}`);
}

function requests(app, block, warp) {
  const { scenes } = app;
  const all = (scenes.ofBlock.get(block.join()) ?? []).filter((event) => event.warp === warp && /load|store/.test(scenes.operation(event.moment).does));
  return [...new Set(all.map((event) => event.moment))];
}

// Lanes above, places below, a wire from each lane to what it asks for.
function wired(lanes, mine, width, place, below, height) {
  const step = (width - 8) / 32, x = (lane) => 4 + step * (lane + .5), top = 26, bottom = 84;
  let svg = "";
  lanes.forEach((lane, i) => {
    const [px, py] = place(i);
    svg += `<path class="wires${lane === mine ? " mine" : ""}" d="M${x(lane)} ${top}C${x(lane)} ${top + 30} ${px} ${bottom - 30 + py} ${px} ${bottom + py}"/>`;
  });
  for (let lane = 0; lane < 32; lane++) {
    const there = lanes.includes(lane);
    svg += rect(x(lane) - step / 2 + 1, 6, step - 2, 20, `cell ${there ? "held" : ""} ${lane === mine ? "mine" : ""}`, `lane ${lane}${there ? "" : ": takes no part"}`, ` data-lane="${lane}"`);
    if (step >= 14) svg += words(x(lane), 16, Math.min(11, step * .6), lane);
  }
  return `<svg class="s" viewBox="0 0 ${width} ${bottom + height}" width="${width}" role="img" aria-label="Which lane asks for what">${svg}<g transform="translate(0 ${bottom})">${below}</g></svg>`;
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
      const asked = wanted.has(sector * each + i);
      below += rect(x + i * cell, y, cell, 20, `cell ${asked ? "busy" : ""}`, `bytes ${sector * 32 + i * size} to ${sector * 32 + (i + 1) * size - 1}${asked ? "" : ": moved, and not asked for"}`);
    }
    below += `<rect x="${x}" y="${y}" width="${box}" height="20" fill="none" stroke="var(--ink)" stroke-width="2"/>`;
    if (box >= 60) below += words(x + box / 2, y + 31, 11, `bytes ${sector * 32}–${sector * 32 + 31}`, "label");
  });
  const place = (i) => {
    const [x, y] = corner(numbers.indexOf(Math.floor(bytes[i] / 32)));
    return [x + (bytes[i] % 32 / size + .5) * cell, y];
  };
  const height = Math.ceil(numbers.length / across) * line, distinct = new Set(event.elements).size;
  const used = distinct * size, moved = event.passes * 32;
  const apart = bytes.length > 1 ? Math.abs(bytes[1] - bytes[0]) : 0;
  const why = event.passes <= Math.ceil(used / 32) ? "The lanes' elements lie side by side, or are the same: as few sectors as can be. The request is coalesced."
    : apart >= 32 ? `Neighbouring lanes ask for elements ${apart} bytes apart, so each needs a sector of its own; the rest of it is moved in vain.`
      : "The lanes' elements lie in several rows, or begin within a sector, so that parts of sectors are moved in vain.";
  return `<p><strong>${plural(lanes.length, "lane")}, ${plural(distinct, "element")}, ${plural(event.passes, "sector")}.</strong> ${grouped(moved)} bytes are moved for ${grouped(used)} that are used. ${why}</p>`
    + wired(lanes, mine, width, place, below, height);
}

function banks(app, event, array, size, mine) {
  const lanes = lanesOf(event), width = Math.max(300, app.width("view")), step = (width - 8) / 32;
  const first = event.elements.map((element) => (array.start + element * size) / 4);
  const words_of = first.map((word) => Array.from({ length: Math.max(1, size / 4) }, (_, i) => Math.floor(word) + i));
  const rows = [...new Set(words_of.flat().map((word) => Math.floor(word / 32)))].sort((a, b) => a - b);
  const asked = new Set(words_of.flat()), of_bank = new Map();
  for (const word of asked) of_bank.set(word % 32, (of_bank.get(word % 32) ?? 0) + 1);
  const line = rows.length > 8 ? 14 : 22;
  let below = "";
  rows.forEach((row, r) => {
    for (let bank = 0; bank < 32; bank++) {
      const word = row * 32 + bank, crowded = event.conflicts > 0 && of_bank.get(bank) > 1 && asked.has(word);
      below += rect(4 + bank * step, r * line, step, line - 2, `cell ${crowded ? "bad" : asked.has(word) ? "busy" : ""}`, `bank ${bank}, bytes ${word * 4} to ${word * 4 + 3}`);
    }
  });
  for (let bank = 0; bank < 32; bank++) if (step >= 14) below += words(4 + (bank + .5) * step, rows.length * line + 9, Math.min(11, step * .6), bank, "label");
  below += words(4, rows.length * line + 26, 11, "banks 0 to 31, 4 bytes each; a row is 128 bytes", "left label");
  const place = (i) => [4 + (words_of[i][0] % 32 + .5) * step, rows.indexOf(Math.floor(words_of[i][0] / 32)) * line];
  const worst = [...of_bank].reduce((most, bank) => bank[1] > most[1] ? bank : most, [0, 0]);
  const crowd = lanes.filter((_, i) => words_of[i].some((word) => word % 32 === worst[0]));
  const why = event.conflicts > 0 && size === 8 ? `Elements of 8 bytes take two banks each and are served half a warp at a time; ${event.conflicts} of the passes are conflicts: lanes of a half want different words of one bank.`
    : event.conflicts > 0
    ? `${plural(worst[1], "different word")} of bank ${worst[0]} are asked for by lanes ${crowd.slice(0, 8).join(", ")}${crowd.length > 8 ? " …" : ""}; a bank delivers one word a pass, so ${event.conflicts} of the passes are conflicts.`
    : size === 8 ? "Elements of 8 bytes take two banks each, so half of a warp is served in a pass: no conflict."
    : asked.size < lanes.length ? "Lanes that ask for the same word get it in the same pass: no conflict." : "Each bank is asked for one word at most: no conflict.";
  return `<p><strong>${plural(lanes.length, "lane")}, ${plural(event.passes, "pass", "passes")} over the banks.</strong> ${why}</p>` + wired(lanes, mine, width, place, below, rows.length * line + 40);
}
