// Numbers, lists, and descriptions of ticks as text.

function shortNumber(value) {
  if (value === undefined) return "";
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value);
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  return size >= 1e6 || size < 1e-3 ? value.toExponential(1) : String(Number(value.toPrecision(4)));
}

const grouped = (count) => count.toLocaleString("en");
const plural = (count, one, many = `${one}s`) => `${grouped(count)} ${count === 1 ? one : many}`;
const pair = (xyz) => `(${xyz[0]}, ${xyz[1]})`;

const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

// The purpose of a phase, and the selected thread's part in the current tick.
function describeFrame(model, entry, frame, block, thread) {
  const { header } = model, steps = entry.steps;
  const name = `thread ${pair(model.thread(thread))}`;
  if (frame.phase < 0 && header.grid.includes(0)) return "The grid is empty: rounded down, C holds no whole tile.";
  if (frame.phase < 0) {
    return `The launch has ${plural(header.grid.reduce((a, b) => a * b), "block")} of ${plural(model.threads, "thread")}. Each block computes a tile of C, each thread one element.`;
  }
  const phase = header.phases[frame.phase], step = phase.step === null ? "" : `Step ${phase.step + 1} of ${steps}: `;
  const before = header.phases[frame.phase - 1]?.kind, after = header.phases[frame.phase + 1]?.kind;
  const shared = header.shared.length > 0;
  const phaseText = {
    load: shared ? "load. Each thread copies one element of A and one of B from global to shared memory." : "load. Each thread reads its elements from global memory, even where other threads read the same ones.",
    wait: before === "multiply" && after === "multiply" ? "wait. No thread has written since the last barrier, so this one orders nothing." : before === "multiply" ? "wait. No thread may overwrite a tile while another thread still reads it." : "wait. No thread continues before all loads of the block are complete.",
    multiply: shared ? "multiply. Each thread multiplies a row of A's tile by a column of B's, from shared memory, and adds the products to its accumulator." : "multiply. Each thread adds one product to its accumulator.",
    slide: "slide. The tile of A moves right along its rows, the tile of B down its columns.",
    store: "Store. Each thread writes its accumulator to C.",
  }[phase.kind];
  return `${step}${phaseText} ${frame.slide ? "" : describeThread(model, entry, frame.tick, block, thread, name)}`;
}

function describeThread(model, entry, tick, block, thread, name) {
  const { kind, memory } = model.operation(tick);
  const warp = Math.floor(thread / 32);
  const event = model.at(block, tick).find((event) => event.warp === warp);
  const i = event ? entryOf(event, thread % 32) : -1;
  if (kind === "barrier") return `Now ${name} is at the barrier.`;
  if (i < 0) return `Now ${name} ${entry.mistake === "no-guards" ? "accesses an element out of bounds" : "is inactive: its element is out of bounds"}.`;
  const value = shortNumber(event.values?.[i]), array = model.header.shared[memory];
  const at = array && kind.startsWith("shared") ? `${array.name}${coordinates(array.dims, event.elements[i])}` : "";
  switch (kind) {
    case "global-load": return `Now ${name} reads ${model.name(memory, event.elements[i])} = ${value} from global memory.`;
    case "global-store": return `Now ${name} writes ${value} to ${model.name(memory, event.elements[i])}.`;
    case "shared-load": return `Now ${name} reads ${at} = ${value}, which is ${model.nameOf(event.origins[i])}.`;
    case "shared-store": return `Now ${name} writes ${model.nameOf(event.origins[i])} = ${value} to ${at}.`;
    case "mul-add": return `Now ${name} adds ${model.nameOf(event.origins[i])}·${model.nameOf(event.originsB[i])}; its accumulator is ${value}.`;
    default: return `Now ${name} computes ${value}.`;
  }
}

// The indices of an array element, as [1][0].
function coordinates(dims, position) {
  let text = "";
  for (const dim of [...dims].reverse()) {
    text = `[${position % dim}]${text}`;
    position = Math.floor(position / dim);
  }
  return text;
}
