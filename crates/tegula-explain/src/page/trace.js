// Reads traces as the library writes them (its module `trace::file` has the form).

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

// A trace in base 64, or where in the page it stands.
async function readTrace(where) {
  const base64 = where.startsWith("#") ? document.getElementById(`trace-${where.slice(1)}`).textContent : where;
  const file = bytesOf(base64), magic = "tegula trace 1\n";
  if (new TextDecoder().decode(file.subarray(0, magic.length)) !== magic) throw new Error("this is no trace that can be read");
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
  const differences = (count) => {
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
  for (const matrix of header.matrices) matrix.before = numbers(u32(), matrix.ty);
  const events = new Array(u32());
  let moment = 0;
  for (let i = 0; i < events.length; i++) {
    moment += varint();
    const operation = header.operations[header.moments[moment].operation];
    const event = { moment, block: [varint(), varint(), varint()], warp: varint(), lanes: u32() };
    const count = ones(event.lanes), does = operation.does;
    if (does.includes("load") || does.includes("store")) {
      event.passes = varint();
      event.conflicts = varint();
      event.elements = differences(count);
    }
    if (does.startsWith("shared") || does === "mul-add") event.from = differences(count);
    if (does === "mul-add") event.other = differences(count);
    if (operation.ty) event.values = numbers(count, operation.ty);
    events[i] = event;
  }
  return { header, events };
}

function numberAt(view, at, type) {
  switch (type) {
    case "f64": return view.getFloat64(at, true);
    case "f32": return view.getFloat32(at, true);
    case "i32": return view.getInt32(at, true);
    case "u32": return view.getUint32(at, true);
    case "i8": return view.getInt8(at);
    case "f16": case "bf16": return short(view.getUint16(at, true), type === "f16" ? 5 : 8);
    case "i64": return Number(view.getBigInt64(at, true));
    case "u64": return Number(view.getBigUint64(at, true));
    case "u8": case "pred": return view.getUint8(at);
    default: throw new Error(`trace.js cannot read ${type}`);
  }
}

// A floating-point number of 16 bits with so many bits of exponent.
function short(bits, exponents) {
  const places = 15 - exponents, bias = 2 ** (exponents - 1) - 1;
  const sign = bits >> 15 ? -1 : 1, exponent = bits >> places & 2 ** exponents - 1, rest = (bits & 2 ** places - 1) / 2 ** places;
  if (exponent === 2 ** exponents - 1) return rest ? NaN : sign * Infinity;
  return sign * (exponent ? (1 + rest) * 2 ** (exponent - bias) : rest * 2 ** (1 - bias));
}

function ones(mask) {
  let count = 0;
  for (mask >>>= 0; mask; mask >>>= 1) count += mask & 1;
  return count;
}

// Where in its lists an event keeps what is of a lane; -1 if the lane took no part.
function entryOf(event, lane) {
  return event.lanes >>> lane & 1 ? ones(event.lanes & 2 ** lane - 1) : -1;
}

function lanesOf(event) {
  const lanes = [];
  for (let lane = 0; lane < 32; lane++) if (event.lanes >>> lane & 1) lanes.push(lane);
  return lanes;
}
