// What is chosen, where on the timeline it stands, and what the keys do.

const VIEWS = [["threads", "Threads", drawThreads], ["memory", "Memory", drawMemory], ["code", "Code", drawCode], ["cost", "Cost", drawCost], ["roof", "Roofline", drawRoof], ["compare", "Compare", drawCompare], ["loops", "Loops", drawLoops], ["mistakes", "Mistakes", drawMistakes]];
const CHOICES = ["family", "tile", "mapping", "size", "dtype", "mistake"];
const ALL = {
  family: ["tiled", "naive"], tile: ["1", "2", "3", "4", "5", "6", "7", "8", "12", "16", "24", "32"], mapping: ["x-col", "x-row"],
  dtype: ["f32", "f64", "i32", "f16", "bf16", "i8"],
  mistake: ["", "missing-first-barrier", "missing-second-barrier", "extra-barrier", "floor-launch", "no-guards"],
};
const NAMES = { "x-col": "column", "x-row": "row", "": "none" };

class App {
  constructor(book) {
    this.book = book;
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
  code() { return this.book.codes[this.entry.kernel]; }
  get frame() { return this.scenes.frames[this.at]; }

  // Where the finding that was gone to puts its mark.
  badAt(space, name, at) {
    const f = this.finding;
    return f && f.space === space && f.name === name && f.index.slice(-2).join() === at.join() && this.frame.moment === f.moment ? ["bad"] : [];
  }
  badThread(linear) {
    const f = this.finding, [x, y] = this.scenes.header.block;
    return f && this.frame.moment === f.moment && f.block.join() === this.block.join() && f.threads.some((t) => t[0] + x * (t[1] + y * t[2]) === linear) ? ["bad"] : [];
  }

  // An entry in the words of the controls.
  told(entry) {
    return { family: entry.family, tile: String(entry.tile), mapping: entry.mapping, size: `${entry.m}×${entry.n}×${entry.k}`, dtype: entry.dtype, mistake: entry.mistake ?? "" };
  }

  // The entry that is most like what is wanted, what was changed last counting most.
  find(wanted, changed) {
    const score = (entry) => CHOICES.reduce((sum, key) => sum + (this.told(entry)[key] === wanted[key] ? key === changed ? 100 : key === "mistake" ? 3 : key === "size" ? 4 : 2 : 0), 0);
    return this.book.entries.reduce((best, entry) => score(entry) > score(best) ? entry : best);
  }

  // The entry that is wanted: of this page, or asked of whoever serves it.
  async obtain(wanted, changed) {
    const exact = this.book.entries.find((entry) => CHOICES.every((key) => this.told(entry)[key] === wanted[key]));
    if (exact || !this.book.served) return exact ?? this.find(wanted, changed);
    const [m, n, k] = wanted.size.split("×");
    // What would be refused is not asked for: browsers write refusals down as errors.
    for (const [name, value] of Object.entries({ m, n, k })) {
      if (!/^[0-9]+$/.test(value) || value < 1 || value > this.book.largest) throw new Error(`${name} is ${value}; it may be 1 to ${this.book.largest}`);
    }
    if (wanted.family === "naive" && /barrier/.test(wanted.mistake)) throw new Error("the naive kernel has no barriers");
    const asked = new URLSearchParams({ kernel: wanted.family, tile: wanted.tile, mapping: wanted.mapping, dtype: wanted.dtype, mistake: wanted.mistake, m, n, k });
    const answer = await fetch(`product?${asked}`), text = await answer.text();
    if (!answer.ok) throw new Error(text);
    const { entries, codes } = await unpack(text);
    // The same may have been asked for twice.
    const known = this.book.entries.find((entry) => CHOICES.every((key) => this.told(entry)[key] === wanted[key]));
    if (known) return known;
    this.book.entries.push(...entries);
    Object.assign(this.book.codes, codes);
    return entries[0];
  }

  // Shows what is wanted, or why that cannot be; what is asked last wins.
  async want(wanted, keep, changed) {
    const turn = this.turn = (this.turn ?? 0) + 1, trouble = this.element("trouble");
    document.body.setAttribute("aria-busy", "true");
    try {
      const entry = await this.obtain(wanted, changed);
      if (turn !== this.turn) return;
      trouble.hidden = true;
      await this.choose(entry, keep);
    } catch (why) {
      if (turn !== this.turn) return;
      trouble.hidden = false;
      trouble.textContent = why.message;
      if (this.entry) this.controls();
    } finally {
      if (turn === this.turn) document.body.removeAttribute("aria-busy");
    }
  }

  controls() {
    const told = this.told(this.entry), { served } = this.book;
    this.element("own").hidden = !served;
    document.querySelector("#choice [name=size]").parentElement.hidden = served;
    for (const key of ["m", "n", "k"]) document.querySelector(`#choice [name=${key}]`).value = this.entry[key];
    for (const key of CHOICES) {
      const select = document.querySelector(`#choice [name=${key}]`);
      const values = served && ALL[key] ? [...new Set([...ALL[key], told[key]])] : [...new Set(this.book.entries.map((entry) => this.told(entry)[key]))];
      if (key === "tile") values.sort((a, b) => a - b);
      const possible = (value) => served || this.book.entries.some((entry) => CHOICES.every((k) => this.told(entry)[k] === (k === key ? value : told[k])));
      select.innerHTML = values.map((value) => `<option value="${value}" ${value === told[key] ? "selected" : ""}>${NAMES[value] ?? value}${possible(value) ? "" : " *"}</option>`).join("");
    }
  }

  async choose(entry, keep = {}) {
    const turn = this.turn;
    const scenes = this.traces.get(entry) ?? new Scenes(await readTrace(entry.trace));
    // Something else may have been asked for meanwhile.
    if (turn !== this.turn) return;
    this.stop();
    this.traces.set(entry, scenes);
    this.entry = entry;
    this.scenes = scenes;
    const { grid } = this.scenes.header;
    this.finding = null;
    this.at = Math.min(keep.at ?? 0, this.scenes.frames.length - 1);
    this.block = this.block.map((b, i) => Math.max(0, Math.min(b, grid[i] - 1)));
    this.thread = Math.min(this.thread, this.scenes.threads - 1);
    this.controls();
    this.timeline();
    this.draw();
  }

  timeline() {
    const { scenes } = this, { acts } = scenes.header;
    this.show("acts", acts.map((act, i) => `<span class="${act.does}" data-act="${i}" style="flex:${Math.max(1, act.moments[1] - act.moments[0])}" title="${act.does}">${act.does}</span>`).join(""));
    for (const span of document.querySelectorAll("#acts span")) if (span.scrollWidth > span.clientWidth) span.textContent = "";
    Object.assign(this.element("at"), { max: scenes.frames.length - 1 });
  }

  draw() {
    if (!this.scenes) return;
    const { scenes, entry, frame } = this;
    const state = scenes.after(this.block, frame.moment);
    this.show("what", `${escaped(entry.kernel)}: C = A·B, ${entry.m}×${entry.n} = ${entry.m}×${entry.k} · ${entry.k}×${entry.n}; ${plural(entry.steps, "step")}`);
    this.element("at").value = this.at;
    this.element("at").setAttribute("aria-valuetext", `moment ${this.at} of ${scenes.frames.length - 1}`);
    this.show("where", `${this.at} of ${scenes.frames.length - 1}`);
    document.querySelectorAll("#acts span").forEach((span, i) => span.classList.toggle("now", i === frame.act));
    this.show("say", escaped(story(scenes, entry, frame, this.block, this.thread)));
    drawMatrices(this, frame, state);
    drawShared(this, frame, state);
    drawFormula(this, frame);
    const found = scenes.header.findings.length + (entry.wrong ? 1 : 0);
    this.show("tabs", VIEWS.map(([key, name], i) => `<button type="button" role="tab" id="tab-${key}" data-view="${key}" aria-controls="view" aria-selected="${key === this.view}" tabindex="${key === this.view ? 0 : -1}" title="${i + 1}">${name}${key === "mistakes" && found ? ` (${found})` : ""}</button>`).join(""));
    this.element("view").setAttribute("aria-labelledby", `tab-${this.view}`);
    VIEWS.find(([key]) => key === this.view)[2](this, frame, state);
    const at_start = this.at === 0, at_end = this.at === scenes.frames.length - 1;
    for (const button of document.querySelectorAll("[data-go]")) {
      const back = ["start", "act-back", "back"].includes(button.dataset.go);
      button.disabled = button.dataset.go !== "play" && (back ? at_start : at_end);
    }
    this.remember();
  }

  remember() {
    const told = this.told(this.entry);
    const state = new URLSearchParams({ kernel: told.family, tile: told.tile, map: told.mapping, size: told.size.replaceAll("×", "x"), type: told.dtype });
    if (told.mistake) state.set("mistake", told.mistake);
    state.set("at", this.at);
    state.set("block", this.block.slice(0, 2).join());
    state.set("thread", this.scenes.thread(this.thread).slice(0, 2).join());
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
    // What the address leaves out is as in the first product.
    const first = this.told(this.book.entries[0]), given = (key, name) => state.get(name) ?? first[key];
    const wanted = { family: given("family", "kernel"), tile: given("tile", "tile"), mapping: given("mapping", "map"), size: given("size", "size").replaceAll("x", "×"), dtype: given("dtype", "type"), mistake: given("mistake", "mistake") };
    const [bx, by = 0] = list("block"), [tx, ty = 0] = list("thread");
    this.block = [bx, by, 0];
    await this.want(wanted, { at: Math.max(0, Math.trunc(Number(state.get("at"))) || 0) });
    if (!this.entry) await this.choose(this.book.entries[0]);
    if (!this.scenes) return;
    const [x, y] = this.scenes.header.block;
    if (tx < x && ty < y) this.thread = ty * x + tx;
    this.draw();
  }

  go(to) {
    const { frames } = this.scenes, last = frames.length - 1;
    const next_act = () => {
      const at = frames.findIndex((frame, i) => i > this.at && frame.act !== this.frame.act);
      return at < 0 ? last : at;
    };
    const act_before = () => {
      const first = frames.findIndex((frame) => frame.act === this.frame.act);
      return first < this.at ? first : Math.max(0, frames.findIndex((frame) => frame.act === frames[Math.max(0, this.at - 1)].act));
    };
    const places = { start: 0, end: last, back: this.at - 1, forth: this.at + 1, "act-forth": next_act(), "act-back": act_before() };
    this.at = Math.max(0, Math.min(last, places[to] ?? to));
    this.draw();
  }

  play() {
    if (this.playing) return this.stop();
    if (this.at === this.scenes.frames.length - 1) this.go("start");
    this.playing = setInterval(() => {
      this.go("forth");
      if (this.at === this.scenes.frames.length - 1) this.stop();
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
    this.thread = (thread + this.scenes.threads) % this.scenes.threads;
    this.draw();
  }

  nextBlock() {
    const [x, y] = this.scenes.header.grid;
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
    if (!this.scenes) return;
    const typing = /^(SELECT|INPUT|TEXTAREA)$/.test(event.target.tagName);
    if (event.ctrlKey || event.metaKey || event.altKey || typing) return;
    const on_tab = event.target.getAttribute?.("role") === "tab", pressing = event.target.tagName === "BUTTON";
    const turn = (by) => {
      const at = VIEWS.findIndex(([key]) => key === this.view);
      this.see(VIEWS[(at + by + VIEWS.length) % VIEWS.length][0]);
      this.element(`tab-${this.view}`).focus();
    };
    const keys = {
      ArrowRight: () => on_tab ? turn(1) : this.go("forth"), ArrowLeft: () => on_tab ? turn(-1) : this.go("back"),
      "]": () => this.go("act-forth"), "[": () => this.go("act-back"), Home: () => this.go("start"), End: () => this.go("end"),
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
    if (!this.scenes) return;
    const at = (name) => event.target.closest(`[data-${name}]`)?.dataset[name];
    if (at("go") === "play") this.play();
    else if (at("go")) { this.stop(); this.go(at("go")); this.refocus(`[data-go="${at("go")}"]`); }
    else if (at("view")) { this.see(at("view")); this.element(`tab-${this.view}`).focus(); }
    else if (at("thread")) this.pickThread(Number(at("thread")));
    else if (at("lane")) this.pickLane(Number(at("lane")));
    else if (at("block")) { this.block = at("block").split(",").map(Number); this.draw(); }
    else if (at("act")) this.go(this.scenes.frames.findIndex((frame) => frame.act === Number(at("act"))));
    else if (at("language")) { this.language = at("language"); this.draw(); this.refocus(`[data-language="${this.language}"]`); }
    else if (at("moment")) this.go(this.scenes.frames.findIndex((frame) => !frame.slide && frame.moment === Number(at("moment"))));
    else if (at("finding")) this.goFinding(Number(at("finding")));
  }

  refocus(selector) {
    const element = document.querySelector(selector);
    if (element && !element.disabled) element.focus();
  }

  pickLane(lane) {
    const thread = Math.floor(this.thread / 32) * 32 + lane;
    if (thread < this.scenes.threads) this.pickThread(thread);
  }

  goFinding(number) {
    const finding = this.scenes.header.findings[number], [x, y] = this.scenes.header.block;
    this.finding = finding;
    this.block = finding.block;
    if (finding.threads.length) this.thread = finding.threads[0][0] + x * (finding.threads[0][1] + y * finding.threads[0][2]);
    this.go(this.scenes.frames.findIndex((frame) => !frame.slide && frame.moment === finding.moment));
  }

  change(event) {
    const { id } = event.target;
    if (id === "other" || id === "device") {
      this[id] = event.target.value;
      this.draw();
      return this.refocus(`#${id}`);
    }
    const { name, value } = event.target, told = this.told(this.entry);
    if (["m", "n", "k"].includes(name)) {
      const size = ["m", "n", "k"].map((key) => document.querySelector(`#choice [name=${key}]`).value).join("×");
      return this.want({ ...told, size }, {}, "size");
    }
    if (CHOICES.includes(name)) return this.want({ ...told, [name]: value }, {}, name);
  }

  async start() {
    document.addEventListener("click", (event) => this.click(event));
    document.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("change", (event) => this.change(event));
    this.element("choice").addEventListener("submit", (event) => event.preventDefault());
    this.element("at").addEventListener("input", (event) => { this.stop(); this.go(Number(event.target.value)); });
    addEventListener("hashchange", () => this.recall());
    let timer;
    addEventListener("resize", () => { clearTimeout(timer); timer = setTimeout(() => { if (this.scenes) this.timeline(); this.draw(); }, 100); });
    this.show("made", `Made by tegula ${escaped(this.book.version)} by running the kernels themselves.`);
    await this.recall();
    document.body.dataset.ready = Math.round(performance.now());
  }
}

unpack(document.getElementById("book").textContent.trim()).then((book) => new App(book).start()).catch((trouble) => {
  const say = document.getElementById("trouble");
  say.hidden = false;
  say.textContent = `This page cannot be shown: ${trouble.message}. It needs a browser of 2023 or later.`;
});
