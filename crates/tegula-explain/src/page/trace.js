// Reads trace files; the library's module `trace::file` documents the format.

const SIZES = { f64: 8, i64: 8, u64: 8, f32: 4, i32: 4, u32: 4, f16: 2, bf16: 2, i8: 1, u8: 1, pred: 1 };

function bytesOf(base64) {
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function unpack(base64) {
  return JSON.parse(new TextDecoder().decode(await inflate(bytesOf(base64))));
}

// A trace in base 64, or `#` and the number of the page element that holds it.
async function readTrace(source) {
  const base64 = source.startsWith("#") ? document.getElementById(`trace-${source.slice(1)}`).textContent : source;
  const file = bytesOf(base64), magic = "tegula trace 1\n";
  if (new TextDecoder().decode(file.subarray(0, magic.length)) !== magic) throw new Error("invalid trace: wrong signature");
  return parseTrace(await inflate(file.subarray(magic.length)));
}

function parseTrace(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  const u32 = () => { at += 4; return view.getUint32(at - 4, true); };
  const varint = () => {
    for (let value = 0, scale = 1; ; scale *= 128) {
      const byte = bytes[at++];
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
  };
  const deltas = (count) => {
    const list = new Array(count);
    for (let i = 0, last = 0; i < count; i++) {
      const folded = varint();
      last += folded % 2 ? -(folded + 1) / 2 : folded / 2;
      list[i] = last;
    }
    return list;
  };
  const numbers = (count, type) => {
    const list = new Array(count);
    for (let i = 0; i < count; i++, at += SIZES[type]) list[i] = numberAt(view, at, type);
    return list;
  };
  const length = u32();
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(at, at + length)));
  at += length;
  nameFields(header);
  for (const matrix of header.matrices) matrix.initial = numbers(u32(), matrix.ty);
  const events = new Array(u32());
  let tick = 0;
  for (let i = 0; i < events.length; i++) {
    tick += varint();
    const operation = header.operations[header.ticks[tick].operation];
    const event = { tick, block: [varint(), varint(), varint()], warp: varint(), lanes: u32() };
    const count = countOnes(event.lanes), kind = operation.kind;
    if (kind.includes("load") || kind.includes("store")) {
      event.transactions = varint();
      event.conflicts = varint();
      event.elements = deltas(count);
    }
    if (kind.startsWith("shared") || kind === "mul-add") event.origins = deltas(count);
    if (kind === "mul-add") event.originsB = deltas(count);
    if (operation.ty) event.values = numbers(count, operation.ty);
    events[i] = event;
  }
  return { header, events };
}

// Adds the names of the library to keys of the file format.
function nameFields(header) {
  header.ticks = header.moments;
  header.phases = header.acts.map(({ does, step, moments }) => ({ kind: does, step, ticks: moments }));
  for (const operation of header.operations) operation.kind = operation.does;
  for (const matrix of header.matrices) matrix.firstOrigin = matrix.first;
  for (const finding of header.findings) finding.tick = finding.moment;
}

function numberAt(view, at, type) {
  switch (type) {
    case "f64": return view.getFloat64(at, true);
    case "f32": return view.getFloat32(at, true);
    case "i32": return view.getInt32(at, true);
    case "u32": return view.getUint32(at, true);
    case "i8": return view.getInt8(at);
    case "f16": case "bf16": return float16(view.getUint16(at, true), type === "f16" ? 5 : 8);
    case "i64": return Number(view.getBigInt64(at, true));
    case "u64": return Number(view.getBigUint64(at, true));
    case "u8": case "pred": return view.getUint8(at);
    default: throw new Error(`trace.js cannot read ${type}`);
  }
}

// A 16-bit floating-point number with this many exponent bits.
function float16(bits, exponentBits) {
  const fractionBits = 15 - exponentBits, bias = 2 ** (exponentBits - 1) - 1;
  const sign = bits >> 15 ? -1 : 1, exponent = bits >> fractionBits & 2 ** exponentBits - 1, fraction = (bits & 2 ** fractionBits - 1) / 2 ** fractionBits;
  if (exponent === 2 ** exponentBits - 1) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? (1 + fraction) * 2 ** (exponent - bias) : fraction * 2 ** (1 - bias));
}

function countOnes(mask) {
  let count = 0;
  for (mask >>>= 0; mask; mask >>>= 1) count += mask & 1;
  return count;
}

// The index of a lane in an event's lists; -1 for an inactive lane.
function entryOf(event, lane) {
  return event.lanes >>> lane & 1 ? countOnes(event.lanes & 2 ** lane - 1) : -1;
}

function lanesOf(event) {
  const lanes = [];
  for (let lane = 0; lane < 32; lane++) if (event.lanes >>> lane & 1) lanes.push(lane);
  return lanes;
}
