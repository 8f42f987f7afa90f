// Numbers, lists and moments in words.

function short_number(value) {
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

// What an act is for, and what the chosen thread does in the moment at hand.
function story(scenes, entry, frame, block, thread) {
  const { header } = scenes, steps = entry.steps;
  const who = `thread ${pair(scenes.thread(thread))}`;
  if (frame.act < 0 && header.grid.includes(0)) return "No block starts: rounded down, no whole tile fits into C.";
  if (frame.act < 0) {
    return `${plural(header.grid.reduce((a, b) => a * b), "block")} of ${plural(scenes.threads, "thread")} are about to start; each block makes a tile of C, each thread one element.`;
  }
  const act = header.acts[frame.act], step = act.step === null ? "" : `Step ${act.step + 1} of ${steps}: `;
  const before = header.acts[frame.act - 1]?.does, after = header.acts[frame.act + 1]?.does;
  const shared = header.shared.length > 0;
  const act_words = {
    load: shared ? "load. Every thread reads one element of A and one of B from global memory and puts them into shared memory." : "load. Every thread reads its own elements from global memory, whoever else reads the same ones.",
    wait: before === "multiply" && after === "multiply" ? "wait. Nothing was written since the last wait, so this one orders nothing." : before === "multiply" ? "wait. No thread may overwrite a tile that another one still reads." : "wait. No thread goes on until what all of them load has arrived.",
    multiply: shared ? "multiply. Each thread takes a row of A's tile and a column of B's from shared memory and adds the products to its sum." : "multiply. Each thread adds one product to its sum.",
    slide: `slide. The tile of A moves on along its rows, the tile of B down its columns.`,
    store: "Store. Each thread writes its sum to C.",
  }[act.does];
  return `${step}${act_words} ${frame.slide ? "" : doing(scenes, entry, frame.moment, block, thread, who)}`;
}

function doing(scenes, entry, moment, block, thread, who) {
  const { does, memory } = scenes.operation(moment);
  const warp = Math.floor(thread / 32);
  const event = scenes.at(block, moment).find((event) => event.warp === warp);
  const i = event ? entryOf(event, thread % 32) : -1;
  if (does === "barrier") return `Now ${who} is at the barrier.`;
  if (i < 0) return `Now ${who} ${entry.mistake === "no-guards" ? "asks for what lies beyond the edge" : "does nothing: what it would take lies beyond the edge"}.`;
  const value = short_number(event.values?.[i]), array = scenes.header.shared[memory];
  const at = array && does.startsWith("shared") ? `${array.name}${coordinates(array.dims, event.elements[i])}` : "";
  switch (does) {
    case "global-load": return `Now ${who} reads ${scenes.name(memory, event.elements[i])} = ${value} from global memory.`;
    case "global-store": return `Now ${who} writes ${value} to ${scenes.name(memory, event.elements[i])}.`;
    case "shared-load": return `Now ${who} reads ${at} = ${value}, which is ${scenes.nameOf(event.from[i])}.`;
    case "shared-store": return `Now ${who} writes ${scenes.nameOf(event.from[i])} = ${value} to ${at}.`;
    case "mul-add": return `Now ${who} adds ${scenes.nameOf(event.from[i])}·${scenes.nameOf(event.other[i])}; its sum is ${value}.`;
    default: return `Now ${who} computes ${value}.`;
  }
}

// [1][0] of an element by its position in an array.
function coordinates(dims, position) {
  let text = "";
  for (const dim of [...dims].reverse()) {
    text = `[${position % dim}]${text}`;
    position = Math.floor(position / dim);
  }
  return text;
}
