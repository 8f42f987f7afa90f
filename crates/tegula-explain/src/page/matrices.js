// A, B and C with the current tiles; below them shared memory, accumulators, and a thread's
// formula.

// For each matrix the elements that the block accesses now, that are in shared memory, and that the
// selected thread uses.
function touched(model, frame, block, thread, state) {
  const sets = model.header.matrices.map(() => ({ busy: new Set(), tile: new Set(), mine: new Set() }));
  const mark = (number, kind) => {
    const element = model.element(number);
    if (element) sets[element.matrix][kind].add(element.position);
  };
  state.shared.forEach((array) => array.forEach(({ origin }) => mark(origin, "tile")));
  if (frame.phase < 0 || frame.slide) return sets;
  const { kind, memory } = model.operation(frame.tick), warp = Math.floor(thread / 32);
  for (const event of model.at(block, frame.tick)) {
    const i = event.warp === warp ? entryOf(event, thread % 32) : -1;
    if (kind.startsWith("global")) {
      event.elements.forEach((element) => sets[memory].busy.add(element));
      if (i >= 0) sets[memory].mine.add(event.elements[i]);
    } else if (event.origins) {
      [...event.origins, ...event.originsB ?? []].forEach((number) => mark(number, "busy"));
      if (i >= 0) [event.origins[i], event.originsB?.[i]].forEach((number) => mark(number, "mine"));
    }
  }
  return sets;
}

const rect = (x, y, w, h, classes, title, more = "") =>
  `<rect x="${x}" y="${y}" width="${w}" height="${h}" class="${classes}"${more}><title>${escaped(title)}</title></rect>`;
const words = (x, y, size, text, classes = "") => `<text x="${x}" y="${y}" font-size="${size}" class="${classes}">${escaped(text)}</text>`;

// A grid of cells with its corner at (left, top); `look` returns the classes, text and title of
// each. Thick edges are drawn after thin ones, so that no neighbor covers them, and the selected
// thread last.
function grid(rows, cols, side, left, top, look, more = () => "") {
  let flat = "", raised = "", topmost = "", labels = "";
  for (let r = 0; r < rows; r++) {
    for (let c = 0; c < cols; c++) {
      const { classes = "", text = "", title = "" } = look(r, c);
      const [x, y] = [left + c * side, top + r * side];
      const cell = rect(x, y, side, side, `cell ${classes}`, title, more(r, c));
      if (/mine|bad/.test(classes)) topmost += cell; else if (/busy/.test(classes)) raised += cell; else flat += cell;
      const size = Math.min(side * .38, side * 1.5 / Math.max(text.length, 1));
      if (text && size >= 9) labels += words(x + side / 2, y + side / 2, size, text);
    }
  }
  return flat + raised + topmost + labels;
}

function drawMatrices(app, frame, state) {
  const { model, block, thread } = app, { header } = model;
  const [a, b, c] = header.matrices, [m, k] = a.shape.slice(1), n = b.shape[2];
  const width = app.width("matrices"), gap = 22;
  const side = Math.max(4, Math.min(46, Math.floor((width - gap - 4) / (k + n))));
  const sets = touched(model, frame, block, thread, state);
  const tile = new Set((model.ofBlock.get(block.join()) ?? []).filter((e) => model.operation(e.tick).kind === "global-store").flatMap((e) => e.elements));
  const own = model.ofThread(block, thread).stores.map((store) => store.element);
  const look = (matrix) => (r, col) => {
    const position = r * header.matrices[matrix].shape[2] + col, { busy, tile: held, mine } = sets[matrix];
    const inside = matrix === 2 ? tile.has(position) : held.has(position);
    const value = matrix === 2 ? state.written[2].get(position) : header.matrices[matrix].initial[position];
    const name = model.name(matrix, position);
    const missing = matrix === 2 && value === undefined && app.at === model.frames.length - 1;
    const classes = [missing && "bad", inside && "tile", busy.has(position) && "busy", (mine.has(position) || matrix === 2 && own.includes(position)) && "mine", ...app.badAt("global", header.matrices[matrix].name, [r, col])];
    return {
      classes: classes.filter(Boolean).join(" "),
      text: app.names ? name : shortNumber(value),
      title: value === undefined ? `${name}: uninitialized` : `${name} = ${shortNumber(value)}`,
    };
  };
  const [left, top] = [2 + k * side + gap, 2 + k * side + gap];
  const label = (text, x, y) => words(x, y, 14, text, "label");
  const svg = `<svg viewBox="0 0 ${left + n * side + 2} ${top + m * side + 2}" width="${left + n * side + 2}" role="img" aria-label="A of ${m} by ${k}, B of ${k} by ${n}, C of ${m} by ${n}">`
    + label("B", left - 11, top / 2 - 8) + label("A", 2 + k * side / 2, top - 11) + label("C", left - 11, top - 11)
    + `<g class="b">${grid(k, n, side, left, 2, look(1))}</g>`
    + `<g class="a">${grid(m, k, side, 2, top, look(0))}</g>`
    + `<g class="c">${grid(m, n, side, left, top, look(2))}</g>${outOfBounds(app, [[2, top], [left, 2], [left, top]], side)}</svg>`;
  const legend = `<p class="legend">${header.shared.length ? `<span><i style="background:var(--a)"></i>of A, <i style="background:var(--b)"></i>of B in shared memory</span>` : ""}`
    + `<span><i style="background:var(--c)"></i>the block's tile of C</span><span><i style="border:3px solid var(--a-strong)"></i>accessed now</span><span><i style="border:3px dashed var(--ink)"></i>of the selected thread</span></p>`;
  app.show("matrices", `<h2>C = A·B, block ${pair(block)} of ${header.grid[0]}×${header.grid[1]}</h2>${svg}${legend}`);
}

// A mark at the edge of a matrix for an access out of bounds.
function outOfBounds(app, corners, side) {
  const matrix = app.model.header.matrices.findIndex(({ name }) => name === app.finding?.name), bad = app.finding?.index.slice(-2) ?? [];
  if (matrix < 0 || !app.badAt("global", app.finding.name, bad).length) return "";
  const [, rows, cols] = app.model.header.matrices[matrix].shape, [row, col] = bad, [left, top] = corners[matrix], narrow = Math.min(side, 14);
  if (row < rows && col < cols) return "";
  const [w, h] = [col < cols ? side : narrow, row < rows ? side : narrow];
  return rect(left + Math.min(col, cols) * side + 2, top + Math.min(row, rows) * side + 2, w, h, "cell bad out-of-bounds", `${app.finding.name}[${row}, ${col}] does not exist: the matrix is ${rows}×${cols}`);
}

function drawShared(app, frame, state) {
  const { model, block, thread } = app, { header } = model;
  const now = frame.phase < 0 || frame.slide ? [] : model.at(block, frame.tick);
  const operation = frame.tick < 0 ? null : model.operation(frame.tick);
  const [bx, by, bz] = header.block, warp = Math.floor(thread / 32);
  const figures = header.shared.length + 1;
  const side = Math.max(8, Math.min(46, Math.floor((app.width("shared") - 16 * (figures - 1) - 4) / (figures * Math.max(bx, ...header.shared.map((array) => array.dims.at(-1)))))));
  const figure = (classes, rows, cols, look, caption, more) =>
    `<figure><svg class="${classes}" viewBox="-2 -2 ${cols * side + 4} ${rows * side + 4}" width="${cols * side + 4}" role="img" aria-label="${escaped(caption)}">${grid(rows, cols, side, 0, 0, look, more)}</svg><figcaption>${escaped(caption)}</figcaption></figure>`;
  const arrays = header.shared.map((array, number) => {
    const cols = array.dims.at(-1), rows = array.dims.slice(0, -1).reduce((product, dim) => product * dim, 1);
    const uses = now.filter(() => operation.kind.startsWith("shared") && operation.memory === number);
    const busy = new Set(uses.flatMap((event) => event.elements));
    const mine = uses.filter((event) => event.warp === warp).map((event) => event.elements[entryOf(event, thread % 32)]);
    return figure("s", rows, cols, (r, c) => {
      const position = r * cols + c, held = state.shared[number].get(position);
      const classes = [held && "held", busy.has(position) && "busy", mine.includes(position) && "mine", ...app.badAt("shared", array.name, [r, c])];
      return {
        classes: classes.filter(Boolean).join(" "),
        text: held ? app.names ? model.nameOf(held.origin) : shortNumber(held.value) : "",
        title: `${array.name}[${r}][${c}]: ${held ? `${model.nameOf(held.origin)} = ${shortNumber(held.value)}` : "uninitialized"}`,
      };
    }, `${array.name}, shared memory`);
  });
  const busy = new Set(operation?.kind === "mul-add" ? now.flatMap((event) => lanesOf(event).map((lane) => event.warp * 32 + lane)) : []);
  const accumulators = figure("c", by * bz, bx, (r, c) => {
    const linear = r * bx + c, accumulator = state.accumulators.get(linear);
    return {
      classes: [accumulator !== undefined && "tile", busy.has(linear) && "busy", linear === thread && "mine", ...app.badThread(linear)].filter(Boolean).join(" "),
      text: shortNumber(accumulator),
      title: `thread (${c}, ${r})${accumulator === undefined ? "" : `: accumulator ${shortNumber(accumulator)}`}; click to select it`,
    };
  }, "threads and their accumulators, in registers", (r, c) => ` data-thread="${r * bx + c}" style="cursor:pointer"`);
  app.show("shared", `<h2>Block ${pair(block)}: shared memory and accumulators</h2><div class="arrays">${arrays.join("")}${accumulators}</div>`);
}

function drawFormula(app, frame) {
  const { model, block, thread } = app;
  const { terms, stores, loads } = model.ofThread(block, thread);
  const name = pair(model.thread(thread));
  const [bx, by] = model.header.block, [tx, ty] = model.thread(thread);
  const x_row = app.entry.mapping === "x-row";
  const place = `row = ${x_row ? "block x" : "block y"}·${x_row ? bx : by} + ${x_row ? "x" : "y"} = ${block[x_row ? 0 : 1]}·${by} + ${x_row ? tx : ty} = ${block[x_row ? 0 : 1] * by + (x_row ? tx : ty)}, `
    + `col = ${x_row ? "block y" : "block x"}·${bx} + ${x_row ? "y" : "x"} = ${block[x_row ? 1 : 0]}·${bx} + ${x_row ? ty : tx} = ${block[x_row ? 1 : 0] * bx + (x_row ? ty : tx)}`;
  const term = (of) => (t) => `<span class="${t.tick > frame.tick ? "todo" : t.tick === frame.tick && !frame.slide ? "now" : ""}"><span class="x">${of(t.a)}</span>·<span class="y">${of(t.b)}</span></span>`;
  const byStep = [];
  for (const t of terms) (byStep[t.step ?? 0] ??= []).push(t);
  const several = byStep.length > 1 && byStep.some((group) => group?.length > 1);
  const sum = (of) => byStep.filter(Boolean).map((group) => {
    const inside = group.map(term(of)).join(" + ");
    return several ? `(${inside})` : inside;
  }).join(" + ");
  const done = terms.filter((t) => t.tick <= frame.tick).at(-1), target = stores[0] && model.name(stores[0].memory, stores[0].element);
  const loaded = loads.filter((load) => load.tick <= frame.tick).length;
  app.show("formula", `<h2>Thread ${name} of block ${pair(block)}</h2><p class="faint mono">${place}</p>`
    + (terms.length
      ? `<p class="mono"><span class="z">${target ?? "out of bounds: not stored"}</span> = ${sum((number) => model.nameOf(number))}</p>`
        + `<p class="mono">= ${sum((number) => shortNumber(model.valueOf(number)))}${done ? ` <span class="faint">→ so far</span> <span class="z">${shortNumber(done.accumulator)}</span>` : ""}</p>`
      : target ? `<p>This thread adds no product to <span class="z">${target}</span>: there are 0 k-steps.</p>`
      : "<p>This thread adds no product: its element is out of bounds.</p>")
    + `<p class="faint">It reads ${plural(loads.length, "element")} of global memory, ${loaded} so far; its element of C needs ${app.entry.k * 2}.</p>`);
}
