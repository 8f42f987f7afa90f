// The roofline: bandwidth of each memory level and multiply-add rate of a device, and its kernels.

const LEVELS = { shared: "L1 and shared memory", l2: "L2", dram: "DRAM" };
const SIDE = 4096;

// Bytes that a kernel moves through L1 and shared memory for side³: counts grow linearly with k.
// A sector has 32 bytes; a wavefront takes as long as 128 bytes.
function moved(rung, side) {
  const { sizes: [m, n, k], counters, assembled } = rung;
  const scaled = (count) => {
    const [once, twice] = [0, 1].map(count);
    return side / m * (side / n) * (once + (side / k - 1) * (twice - once));
  };
  return {
    l1: scaled((i) => 32 * (counters[i].global_load_sectors + counters[i].global_store_sectors)),
    shared: scaled((i) => 128 * wavefronts(counters[i], assembled?.[i])),
  };
}

// Shared memory wavefronts, at machine widths if known; asynchronous copies at the widths as
// written.
function wavefronts(counters, assembled) {
  const accesses = assembled ? assembled.load_wavefronts + assembled.store_wavefronts : counters.shared_load_wavefronts + counters.shared_store_wavefronts;
  return accesses + counters.shared_copy_wavefronts;
}

// The costs, roof and measured speed of a kernel on a device.
function onDevice(device, dtype, rung) {
  const flops = 2 * SIDE ** 3, { l1, shared } = moved(rung, SIDE), intensity = flops / (l1 + shared);
  const units = Object.entries(device.multiply_adds[dtype]), unit = units.find(([name]) => /MMA/.test(name) === /mma/.test(rung.kernel)) ?? units[0];
  const roof = Math.min(2 * unit[1], intensity * device.bytes.shared);
  const row = device.measured.find((row) => row.kernel === rung.kernel && row.side === SIDE);
  // Types of equal size move equal bytes.
  const { traffic } = device, alike = traffic.dtype.slice(1) === dtype.slice(1) && traffic.side === SIDE;
  const seen = alike ? traffic.kernels[rung.kernel.replace(`_${dtype}_`, `_${traffic.dtype}_`)] : null;
  const speed = row ? row.tflops * 1e12 : null;
  const points = [{ level: "shared", x: intensity, y: speed ?? roof }];
  if (seen) points.push({ level: "l2", x: flops / (32 * seen.l2_sectors), y: speed ?? roof }, { level: "dram", x: flops / seen.dram_bytes, y: speed ?? roof });
  return { rung, l1, shared, intensity, roof, speed, seen, points };
}

function drawRoof(app) {
  const { catalog, entry } = app, { dtype, rungs } = catalog.ladder;
  const device = catalog.devices.find(({ name }) => name === app.device) ?? catalog.devices[0];
  const all = rungs.map((rung) => onDevice(device, dtype, rung)).sort((a, b) => a.intensity - b.intensity);
  const unit = dtype === "i32" ? "TOP/s" : "TFLOP/s", tera = (value) => (value / 1e12).toPrecision(3), giga = (value) => grouped(Number((value / 1e9).toPrecision(3)));
  const rows = all.map(({ rung, l1, shared, intensity, roof, speed, seen }, i) => `<tr class="${rung.kernel === entry.kernel ? "now" : ""}"><th>${i + 1}. ${escaped(rung.name)}</th><td>${giga(l1)}</td><td>${giga(shared)}</td><td>${seen ? giga(32 * seen.l2_sectors) : "–"}</td><td>${seen ? giga(seen.dram_bytes) : "–"}</td>`
    + `<td>${intensity.toPrecision(2)}</td><td>${tera(roof)}</td><td>${speed ? tera(speed) : "–"}</td><td>${speed ? `${(100 * speed / roof).toFixed(0)}\u00a0%` : ""}</td></tr>`);
  const peaks = Object.entries(device.multiply_adds[dtype]), [, slowest] = peaks[0];
  const ceilings = Object.entries(LEVELS).map(([level, name]) => `<tr><th>${name}</th><td>${tera(device.bytes[level])} TB/s</td><td>${(2 * slowest / device.bytes[level]).toPrecision(2)}</td></tr>`)
    .concat(peaks.map(([name, rate]) => `<tr><th>multiply-adds, ${name}</th><td>${tera(2 * rate)} ${unit}</td><td></td></tr>`));
  const assembled = rungs.some((rung) => rung.assembled);
  const options = catalog.devices.map(({ name }) => `<option ${name === device.name ? "selected" : ""}>${escaped(name)}</option>`).join("");
  app.show("view", `<h2>Roofline of ${SIDE}³, ${dtype}</h2><p><label>Device <select id="device">${options}</select></label></p>`
    + `<p>A kernel with few operations per byte is limited by memory bandwidth (the slopes), one with many by the multiply-add rate (the flat roof). Shared memory tiles replace L1 traffic by shared memory traffic at the same bandwidth; register tiles move a kernel to the right.</p>`
    + roofPicture(app, device, dtype, all, unit)
    + `<p class="legend"><span>● measured speed</span><span>○ the roof, if no speed was measured</span><span>circles: L1 and shared memory, counted</span><span>■ L2, ◆ DRAM: measured by Nsight Compute</span></p>`
    + `<div class="scroll" tabindex="0" aria-label="Kernels"><table><thead><tr><th>kernel</th><th>L1, GB</th><th>shared, GB</th><th>L2, GB</th><th>DRAM, GB</th><th>operations per byte of L1 and shared</th><th>roof, ${unit}</th><th>measured</th><th>of the roof</th></tr></thead><tbody>${rows.join("")}</tbody></table></div>`
    + `<p class="faint">L1 and shared memory traffic is counted for one tile of C and scaled to ${SIDE}³. A wavefront counts as 128 bytes, ${assembled ? "with loads as merged by the assembler" : "with loads as written; the assembler merges some, so a kernel can exceed this roof"}. L2 and DRAM traffic depends on the caches and is measured; reading or writing each matrix once would move ${giga(3 * SIDE ** 2 * SIZES[dtype])} GB.</p>`
    + `<h2>Ceilings of the ${escaped(device.name)}</h2><div class="scroll" tabindex="0" aria-label="Ceilings"><table><thead><tr><th></th><th>ceiling</th><th>operations per byte above which multiply-adds are the limit</th></tr></thead><tbody>${ceilings.join("")}</tbody></table></div>`);
}

function roofPicture(app, device, dtype, all, unit) {
  const width = Math.min(760, Math.max(300, app.width("view"))), height = Math.min(420, width), edge = { left: 42, right: 10, top: 12, bottom: 40 };
  const peaks = Object.entries(device.multiply_adds[dtype]).map(([name, rate]) => [name, 2 * rate]), peak = Math.max(...peaks.map(([, rate]) => rate));
  const points = all.flatMap((one) => one.points);
  const x0 = 2 ** Math.floor(Math.log2(Math.min(...points.map(({ x }) => x)) / 1.2)), x1 = 2 ** Math.ceil(Math.log2(1.5 * Math.max(peak / device.bytes.dram, ...points.map(({ x }) => x))));
  const y0 = Math.min(...points.map(({ y }) => y)) / 5, y1 = 1.8 * peak;
  const at = (value, low, high, from, to) => from + (to - from) * Math.log(value / low) / Math.log(high / low);
  const x = (value) => at(value, x0, x1, edge.left, width - edge.right), y = (value) => at(value, y0, y1, height - edge.bottom, edge.top);
  const line = (a, b, classes) => `<path class="${classes}" d="M${x(a[0]).toFixed(1)} ${y(a[1]).toFixed(1)}L${x(b[0]).toFixed(1)} ${y(b[1]).toFixed(1)}"/>`;
  let svg = "";
  for (let mark = x0; mark <= x1; mark *= 2) {
    svg += line([mark, y0], [mark, y1], "rule");
    if (Math.round(Math.log2(mark)) % (width < 500 ? 2 : 1) === 0) svg += words(x(mark), height - edge.bottom + 12, 11, mark < 1 ? `1/${1 / mark}` : mark, "label");
  }
  for (const mark of [.1, .2, .5, 1, 2, 5, 10, 20, 50, 100, 200].map((t) => t * 1e12).filter((t) => t >= y0 && t <= y1)) {
    svg += line([x0, mark], [x1, mark], "rule") + words(edge.left - 20, y(mark), 11, mark / 1e12, "label");
  }
  svg += words(edge.left, 6, 11, unit, "left label") + words((edge.left + width) / 2, height - 10, 11, "operations per byte", "label");
  const slope = -Math.atan2(y(y0) - y(y1), Math.log(y1 / y0) / Math.log(x1 / x0) * (x(x1) - x(x0))) * 180 / Math.PI;
  for (const level of Object.keys(LEVELS)) {
    const rate = device.bytes[level], from = Math.max(x0, y0 / rate), to = peak / rate, middle = from ** .55 * to ** .45 * (level === "shared" ? 0.55 : 1.2), below = level === "dram" ? 11 : -9;
    svg += line([from, from * rate], [to, peak], `roof ${level}`);
    svg += `<g transform="translate(${x(middle).toFixed(1)} ${y(middle * rate).toFixed(1)}) rotate(${slope.toFixed(1)})">${words(0, below, 11, width < 500 && level === "shared" ? "L1, shared" : LEVELS[level])}</g>`;
  }
  for (const [name, rate] of peaks) svg += line([rate / device.bytes.shared, rate], [x1, rate], "roof") + words(x(x1) - 4, y(rate) - 8, 11, name, "right");
  // Numbers are spaced out below, each with a line to its dot.
  const labels = spread(all.map((one) => x(one.intensity)), 15, edge.left + 8, width - edge.right - 8);
  all.forEach((one, i) => {
    const shown = `${i + 1}. ${one.rung.name}: ${one.intensity.toPrecision(2)} operations per byte`, now = one.rung.kernel === app.entry.kernel ? " now" : "";
    svg += `<path class="wires" d="M${labels[i].toFixed(1)} ${height - edge.bottom - 15}L${x(one.intensity).toFixed(1)} ${y(one.points[0].y).toFixed(1)}"/>${words(labels[i], height - edge.bottom - 8, 11, i + 1)}`;
    for (const point of one.points) svg += dot(x(point.x), y(point.y), point.level, `${one.speed ? "measured" : ""}${now}`, shown);
  });
  const desc = all.map((one, i) => `${i + 1}, ${one.rung.name}: ${one.intensity.toPrecision(2)} operations per byte, ${one.speed ? `measured ${(one.speed / 1e12).toPrecision(3)}` : `roof ${(one.roof / 1e12).toPrecision(3)}`} ${unit}`).join("; ");
  return `<svg class="roofline" viewBox="0 0 ${width} ${height}" width="${width}" role="img" aria-labelledby="roof-title roof-desc"><title id="roof-title">Roofline of the ${escaped(device.name)}</title><desc id="roof-desc">${escaped(desc)}. The table below has the same numbers.</desc>${svg}</svg>`;
}

function dot(x, y, level, classes, title) {
  const side = 5, shape = { shared: `<circle cx="${x}" cy="${y}" r="${side}"`, l2: `<rect x="${x - side}" y="${y - side}" width="${2 * side}" height="${2 * side}"`, dram: `<path d="M${x - 7} ${y}L${x} ${y - 7}L${x + 7} ${y}L${x} ${y + 7}Z"` }[level];
  return `${shape} class="dot ${classes}"><title>${escaped(title)}</title></${shape.slice(1, shape.indexOf(" "))}>`;
}

// Ascending positions, moved to a minimum distance within the given range.
function spread(positions, distance, low, high) {
  const right = positions.map((position) => Math.max(position, low));
  for (let i = 1; i < right.length; i++) right[i] = Math.max(right[i], right[i - 1] + distance);
  let limit = high;
  for (let i = right.length - 1; i >= 0; i--, limit -= distance) right[i] = Math.min(right[i], limit);
  return right;
}
