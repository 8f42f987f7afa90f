// The application: selection, timeline position, views, keys.

const VIEWS = [["threads", "Threads", drawThreads], ["memory", "Memory", drawMemory], ["code", "Code", drawCode], ["cost", "Cost", drawCost], ["roof", "Roofline", drawRoof], ["compare", "Compare", drawCompare], ["loops", "Loops", drawLoops], ["mistakes", "Findings", drawFindings]];
const CONTROLS = ["family", "tile", "mapping", "size", "dtype", "mistake"];
const ALL = {
  family: ["tiled", "naive"], tile: ["1", "2", "3", "4", "5", "6", "7", "8", "12", "16", "24", "32"], mapping: ["x-col", "x-row"],
  dtype: ["f32", "f64", "i32", "f16", "bf16", "i8"],
  mistake: ["", "missing-first-barrier", "missing-second-barrier", "extra-barrier", "floor-launch", "no-guards"],
};
const NAMES = { "x-col": "column", "x-row": "row", "": "none" };

class App {
  constructor(catalog) {
    this.catalog = catalog;
    this.view = "threads";
    this.names = false;
    this.at = 0;
    this.block = [0, 0, 0];
    this.thread = 0;
    this.language = "rust";
    this.other = "";
    this.device = "";
    this.playing = null;
    this.traces = new Map();
    this.finding = null;
  }

  element(id) { return document.getElementById(id); }
  show(id, html) { this.element(id).innerHTML = html; }
  width(id) { return this.element(id).clientWidth || 340; }
  code() { return this.catalog.codes[this.entry.kernel]; }
  get frame() { return this.model.frames[this.at]; }

  // The class of an element that the current finding is about.
  badAt(space, name, at) {
    const f = this.finding;
    return f && f.space === space && f.name === name && f.index.slice(-2).join() === at.join() && this.frame.tick === f.tick ? ["bad"] : [];
  }
  badThread(linear) {
    const f = this.finding, [x, y] = this.model.header.block;
    return f && this.frame.tick === f.tick && f.block.join() === this.block.join() && f.threads.some((t) => t[0] + x * (t[1] + y * t[2]) === linear) ? ["bad"] : [];
  }

  // An entry's values of the controls.
  keyOf(entry) {
    return { family: entry.family, tile: String(entry.tile), mapping: entry.mapping, size: `${entry.m}×${entry.n}×${entry.k}`, dtype: entry.dtype, mistake: entry.mistake ?? "" };
  }

  // The most similar entry; the control changed last has the highest weight.
  find(wanted, changed) {
    const score = (entry) => CONTROLS.reduce((sum, key) => sum + (this.keyOf(entry)[key] === wanted[key] ? key === changed ? 100 : key === "mistake" ? 3 : key === "size" ? 4 : 2 : 0), 0);
    return this.catalog.entries.reduce((best, entry) => score(entry) > score(best) ? entry : best);
  }

  // The entry with the wanted values: of this page, or requested from the server.
  async obtain(wanted, changed) {
    const exact = this.catalog.entries.find((entry) => CONTROLS.every((key) => this.keyOf(entry)[key] === wanted[key]));
    if (exact || !this.catalog.served) return exact ?? this.find(wanted, changed);
    const [m, n, k] = wanted.size.split("×");
    // Invalid requests are not sent, since browsers log rejections as errors.
    for (const [name, value] of Object.entries({ m, n, k })) {
      if (!/^[0-9]+$/.test(value) || value < 1 || value > this.catalog.largest) throw new Error(`${name} is ${value}; the range is 1 to ${this.catalog.largest}`);
    }
    if (wanted.family === "naive" && /barrier/.test(wanted.mistake)) throw new Error("the naive kernel has no barriers");
    const query = new URLSearchParams({ kernel: wanted.family, tile: wanted.tile, mapping: wanted.mapping, dtype: wanted.dtype, mistake: wanted.mistake, m, n, k });
    const response = await fetch(`product?${query}`), text = await response.text();
    if (!response.ok) throw new Error(text);
    const { entries, codes } = await unpack(text);
    // The entry may have been requested twice.
    const known = this.catalog.entries.find((entry) => CONTROLS.every((key) => this.keyOf(entry)[key] === wanted[key]));
    if (known) return known;
    this.catalog.entries.push(...entries);
    Object.assign(this.catalog.codes, codes);
    return entries[0];
  }

  // Shows the wanted entry or an error; the latest request wins.
  async select(wanted, keep, changed) {
    const request = this.request = (this.request ?? 0) + 1, trouble = this.element("trouble");
    document.body.setAttribute("aria-busy", "true");
    try {
      const entry = await this.obtain(wanted, changed);
      if (request !== this.request) return;
      trouble.hidden = true;
      await this.choose(entry, keep);
    } catch (error) {
      if (request !== this.request) return;
      trouble.hidden = false;
      trouble.textContent = error.message;
      if (this.entry) this.controls();
    } finally {
      if (request === this.request) document.body.removeAttribute("aria-busy");
    }
  }

  controls() {
    const selected = this.keyOf(this.entry), { served } = this.catalog;
    this.element("own").hidden = !served;
    document.querySelector("#choice [name=size]").parentElement.hidden = served;
    for (const key of ["m", "n", "k"]) document.querySelector(`#choice [name=${key}]`).value = this.entry[key];
    for (const key of CONTROLS) {
      const select = document.querySelector(`#choice [name=${key}]`);
      const values = served && ALL[key] ? [...new Set([...ALL[key], selected[key]])] : [...new Set(this.catalog.entries.map((entry) => this.keyOf(entry)[key]))];
      if (key === "tile") values.sort((a, b) => a - b);
      const possible = (value) => served || this.catalog.entries.some((entry) => CONTROLS.every((k) => this.keyOf(entry)[k] === (k === key ? value : selected[k])));
      select.innerHTML = values.map((value) => `<option value="${value}" ${value === selected[key] ? "selected" : ""}>${NAMES[value] ?? value}${possible(value) ? "" : " *"}</option>`).join("");
    }
  }

  async choose(entry, keep = {}) {
    const request = this.request;
    const model = this.traces.get(entry) ?? new TraceModel(await readTrace(entry.trace));
    // Another entry may have been requested meanwhile.
    if (request !== this.request) return;
    this.stop();
    this.traces.set(entry, model);
    this.entry = entry;
    this.model = model;
    const { grid } = this.model.header;
    this.finding = null;
    this.at = Math.min(keep.at ?? 0, this.model.frames.length - 1);
    this.block = this.block.map((b, i) => Math.max(0, Math.min(b, grid[i] - 1)));
    this.thread = Math.min(this.thread, this.model.threads - 1);
    this.controls();
    this.timeline();
    this.draw();
  }

  timeline() {
    const { model } = this, { phases } = model.header;
    this.show("phases", phases.map((phase, i) => `<span class="${phase.kind}" data-phase="${i}" style="flex:${Math.max(1, phase.ticks[1] - phase.ticks[0])}" title="${phase.kind}">${phase.kind}</span>`).join(""));
    for (const span of document.querySelectorAll("#phases span")) if (span.scrollWidth > span.clientWidth) span.textContent = "";
    Object.assign(this.element("at"), { max: model.frames.length - 1 });
  }

  draw() {
    if (!this.model) return;
    const { model, entry, frame } = this;
    const state = model.after(this.block, frame.tick);
    this.show("what", `${escaped(entry.kernel)}: C = A·B, ${entry.m}×${entry.n} = ${entry.m}×${entry.k} · ${entry.k}×${entry.n}; ${plural(entry.steps, "step")}`);
    this.element("at").value = this.at;
    this.element("at").setAttribute("aria-valuetext", `tick ${this.at} of ${model.frames.length - 1}`);
    this.show("where", `${this.at} of ${model.frames.length - 1}`);
    document.querySelectorAll("#phases span").forEach((span, i) => span.classList.toggle("now", i === frame.phase));
    this.show("say", escaped(describeFrame(model, entry, frame, this.block, this.thread)));
    drawMatrices(this, frame, state);
    drawShared(this, frame, state);
    drawFormula(this, frame);
    const errors = model.header.findings.filter((finding) => finding.error).length + (entry.wrong ? 1 : 0);
    const notes = model.header.findings.filter((finding) => !finding.error).length;
    const found = errors ? ` (${plural(errors, "error")})` : notes ? ` (${plural(notes, "note")})` : "";
    this.show("tabs", VIEWS.map(([key, name], i) => `<button type="button" role="tab" id="tab-${key}" data-view="${key}" aria-controls="view" aria-selected="${key === this.view}" tabindex="${key === this.view ? 0 : -1}" title="${i + 1}">${name}${key === "mistakes" ? found : ""}</button>`).join(""));
    this.element("view").setAttribute("aria-labelledby", `tab-${this.view}`);
    VIEWS.find(([key]) => key === this.view)[2](this, frame, state);
    const atStart = this.at === 0, atEnd = this.at === model.frames.length - 1;
    for (const button of document.querySelectorAll("[data-go]")) {
      const back = ["start", "phase-back", "back"].includes(button.dataset.go);
      button.disabled = button.dataset.go !== "play" && (back ? atStart : atEnd);
    }
    this.remember();
  }

  remember() {
    const selected = this.keyOf(this.entry);
    const state = new URLSearchParams({ kernel: selected.family, tile: selected.tile, map: selected.mapping, size: selected.size.replaceAll("×", "x"), type: selected.dtype });
    if (selected.mistake) state.set("mistake", selected.mistake);
    state.set("at", this.at);
    state.set("block", this.block.slice(0, 2).join());
    state.set("thread", this.model.thread(this.thread).slice(0, 2).join());
    state.set("view", this.view);
    if (this.names) state.set("names", 1);
    if (this.language !== "rust") state.set("text", this.language);
    if (this.other) state.set("beside", this.other);
    if (this.device) state.set("device", this.device);
    history.replaceState(null, "", `#${state}`);
  }

  async recall() {
    const state = new URLSearchParams(location.hash.slice(1)), list = (key) => (state.get(key) ?? "0,0").split(",").map((n) => Math.max(0, Math.trunc(Number(n)) || 0));
    if (VIEWS.some(([key]) => key === state.get("view"))) this.view = state.get("view");
    this.names = state.get("names") === "1";
    this.language = state.get("text") ?? "rust";
    this.other = state.get("beside") ?? "";
    this.device = state.get("device") ?? "";
    // Values that the address leaves out are those of the first entry.
    const first = this.keyOf(this.catalog.entries[0]), given = (key, name) => state.get(name) ?? first[key];
    const wanted = { family: given("family", "kernel"), tile: given("tile", "tile"), mapping: given("mapping", "map"), size: given("size", "size").replaceAll("x", "×"), dtype: given("dtype", "type"), mistake: given("mistake", "mistake") };
    const [bx, by = 0] = list("block"), [tx, ty = 0] = list("thread");
    this.block = [bx, by, 0];
    await this.select(wanted, { at: Math.max(0, Math.trunc(Number(state.get("at"))) || 0) });
    if (!this.entry) await this.choose(this.catalog.entries[0]);
    if (!this.model) return;
    const [x, y] = this.model.header.block;
    if (tx < x && ty < y) this.thread = ty * x + tx;
    this.draw();
  }

  go(to) {
    const { frames } = this.model, last = frames.length - 1;
    const nextPhase = () => {
      const at = frames.findIndex((frame, i) => i > this.at && frame.phase !== this.frame.phase);
      return at < 0 ? last : at;
    };
    const previousPhase = () => {
      const first = frames.findIndex((frame) => frame.phase === this.frame.phase);
      return first < this.at ? first : Math.max(0, frames.findIndex((frame) => frame.phase === frames[Math.max(0, this.at - 1)].phase));
    };
    const positions = { start: 0, end: last, back: this.at - 1, forth: this.at + 1, "phase-forth": nextPhase(), "phase-back": previousPhase() };
    this.at = Math.max(0, Math.min(last, positions[to] ?? to));
    this.draw();
  }

  play() {
    if (this.playing) return this.stop();
    if (this.at === this.model.frames.length - 1) this.go("start");
    this.playing = setInterval(() => {
      this.go("forth");
      if (this.at === this.model.frames.length - 1) this.stop();
    }, 700);
    this.playButton();
  }

  stop() {
    clearInterval(this.playing);
    this.playing = null;
    this.playButton();
  }

  playButton() {
    const button = document.querySelector("[data-go=play]");
    button.textContent = this.playing ? "❚❚" : "▶";
    button.setAttribute("aria-label", this.playing ? "Pause" : "Play");
  }

  pickThread(thread) {
    this.thread = (thread + this.model.threads) % this.model.threads;
    this.draw();
  }

  nextBlock() {
    const [x, y] = this.model.header.grid;
    if (x * y === 0) return;
    const next = (this.block[1] * x + this.block[0] + 1) % (x * y);
    this.block = [next % x, Math.floor(next / x), 0];
    this.draw();
  }

  see(view) {
    this.view = view;
    this.draw();
  }

  key(event) {
    if (!this.model) return;
    const typing = /^(SELECT|INPUT|TEXTAREA)$/.test(event.target.tagName);
    if (event.ctrlKey || event.metaKey || event.altKey || typing) return;
    const onTab = event.target.getAttribute?.("role") === "tab", pressing = event.target.tagName === "BUTTON";
    const switchTab = (by) => {
      const at = VIEWS.findIndex(([key]) => key === this.view);
      this.see(VIEWS[(at + by + VIEWS.length) % VIEWS.length][0]);
      this.element(`tab-${this.view}`).focus();
    };
    const keys = {
      ArrowRight: () => onTab ? switchTab(1) : this.go("forth"), ArrowLeft: () => onTab ? switchTab(-1) : this.go("back"),
      "]": () => this.go("phase-forth"), "[": () => this.go("phase-back"), Home: () => this.go("start"), End: () => this.go("end"),
      t: () => this.pickThread(this.thread + 1), T: () => this.pickThread(this.thread - 1), b: () => this.nextBlock(),
      v: () => { this.names = !this.names; this.draw(); },
    };
    if (!pressing) keys[" "] = () => this.play();
    VIEWS.forEach(([key], i) => keys[i + 1] = () => this.see(key));
    if (keys[event.key]) {
      event.preventDefault();
      keys[event.key]();
    }
  }

  click(event) {
    if (!this.model) return;
    const at = (name) => event.target.closest(`[data-${name}]`)?.dataset[name];
    if (at("go") === "play") this.play();
    else if (at("go")) { this.stop(); this.go(at("go")); this.refocus(`[data-go="${at("go")}"]`); }
    else if (at("view")) { this.see(at("view")); this.element(`tab-${this.view}`).focus(); }
    else if (at("thread")) this.pickThread(Number(at("thread")));
    else if (at("lane")) this.pickLane(Number(at("lane")));
    else if (at("block")) { this.block = at("block").split(",").map(Number); this.draw(); }
    else if (at("phase")) this.go(this.model.frames.findIndex((frame) => frame.phase === Number(at("phase"))));
    else if (at("language")) { this.language = at("language"); this.draw(); this.refocus(`[data-language="${this.language}"]`); }
    else if (at("tick")) this.go(this.model.frames.findIndex((frame) => !frame.slide && frame.tick === Number(at("tick"))));
    else if (at("finding")) this.goFinding(Number(at("finding")));
  }

  refocus(selector) {
    const element = document.querySelector(selector);
    if (element && !element.disabled) element.focus();
  }

  pickLane(lane) {
    const thread = Math.floor(this.thread / 32) * 32 + lane;
    if (thread < this.model.threads) this.pickThread(thread);
  }

  goFinding(number) {
    const finding = this.model.header.findings[number], [x, y] = this.model.header.block;
    this.finding = finding;
    this.block = finding.block;
    if (finding.threads.length) this.thread = finding.threads[0][0] + x * (finding.threads[0][1] + y * finding.threads[0][2]);
    this.go(this.model.frames.findIndex((frame) => !frame.slide && frame.tick === finding.tick));
  }

  change(event) {
    const { id } = event.target;
    if (id === "other" || id === "device") {
      this[id] = event.target.value;
      this.draw();
      return this.refocus(`#${id}`);
    }
    const { name, value } = event.target, selected = this.keyOf(this.entry);
    if (["m", "n", "k"].includes(name)) {
      const size = ["m", "n", "k"].map((key) => document.querySelector(`#choice [name=${key}]`).value).join("×");
      return this.select({ ...selected, size }, {}, "size");
    }
    if (CONTROLS.includes(name)) return this.select({ ...selected, [name]: value }, {}, name);
  }

  async start() {
    document.addEventListener("click", (event) => this.click(event));
    document.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("change", (event) => this.change(event));
    this.element("choice").addEventListener("submit", (event) => event.preventDefault());
    this.element("at").addEventListener("input", (event) => { this.stop(); this.go(Number(event.target.value)); });
    addEventListener("hashchange", () => this.recall());
    let timer;
    addEventListener("resize", () => { clearTimeout(timer); timer = setTimeout(() => { if (this.model) this.timeline(); this.draw(); }, 100); });
    this.show("made", `Generated by tegula ${escaped(this.catalog.version)} from runs of the kernels themselves.`);
    await this.recall();
    document.body.dataset.ready = Math.round(performance.now());
  }
}

unpack(document.getElementById("catalog").textContent.trim()).then((catalog) => new App(catalog).start()).catch((error) => {
  const trouble = document.getElementById("trouble");
  trouble.hidden = false;
  trouble.textContent = `This page cannot be shown: ${error.message}. It needs a browser of 2023 or later.`;
});
