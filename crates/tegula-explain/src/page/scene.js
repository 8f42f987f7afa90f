// What is true after a moment: what lies in shared memory, what the sums have come to, what C holds.

// The places of the timeline: before the first moment, each moment, and each slide, in which nothing happens.
function framesOf(header) {
  const frames = [{ act: -1, moment: -1 }];
  header.acts.forEach((act, number) => {
    const [from, to] = act.moments;
    if (from === to) frames.push({ act: number, moment: from - 1, slide: true });
    for (let moment = from; moment < to; moment++) frames.push({ act: number, moment });
  });
  return frames;
}

class Scenes {
  constructor(trace) {
    const { header, events } = trace;
    this.header = header;
    this.events = events;
    this.frames = framesOf(header);
    // What each block did, and what was written to global memory by any.
    this.ofBlock = new Map();
    this.writes = [];
    for (const event of events) {
      const key = event.block.join();
      if (!this.ofBlock.has(key)) this.ofBlock.set(key, []);
      this.ofBlock.get(key).push(event);
      if (this.operation(event.moment).does === "global-store") this.writes.push(event);
    }
  }

  operation(moment) {
    return this.header.operations[this.header.moments[moment].operation];
  }

  // The state of a block after a moment.
  after(block, moment) {
    const state = { shared: this.header.shared.map(() => new Map()), sums: new Map(), written: this.header.matrices.map(() => new Map()) };
    for (const event of this.ofBlock.get(block.join()) ?? []) {
      if (event.moment > moment) break;
      const { does, memory } = this.operation(event.moment);
      if (does === "shared-store") {
        event.elements.forEach((element, i) => state.shared[memory].set(element, { value: event.values[i], from: event.from[i], moment: event.moment }));
      } else if (does === "mul-add") {
        lanesOf(event).forEach((lane, i) => state.sums.set(event.warp * 32 + lane, event.values[i]));
      }
    }
    for (const event of this.writes) {
      if (event.moment > moment) break;
      const { memory } = this.operation(event.moment);
      event.elements.forEach((element, i) => state.written[memory].set(element, event.values[i]));
    }
    return state;
  }

  // What a block does in a moment.
  at(block, moment) {
    return (this.ofBlock.get(block.join()) ?? []).filter((event) => event.moment === moment);
  }

  // The products that a thread adds, and where it stores.
  ofThread(block, thread) {
    const warp = Math.floor(thread / 32), lane = thread % 32, terms = [], stores = [], loads = [];
    for (const event of this.ofBlock.get(block.join()) ?? []) {
      const i = event.warp === warp ? entryOf(event, lane) : -1;
      if (i < 0) continue;
      const { does, memory } = this.operation(event.moment), { moment } = event;
      if (does === "mul-add") terms.push({ moment, step: this.header.moments[moment].step, a: event.from[i], b: event.other[i], sum: event.values[i] });
      if (does === "global-store") stores.push({ moment, memory, element: event.elements[i], value: event.values[i] });
      if (does === "global-load") loads.push({ moment, memory, element: event.elements[i], value: event.values[i] });
    }
    return { terms, stores, loads };
  }

  // The element that a number stands for which says where something was copied from.
  element(number) {
    const matrix = this.header.matrices.findIndex(({ first, shape: [b, r, c] }) => number >= first && number < first + b * r * c);
    return matrix < 0 ? null : { matrix, position: number - this.header.matrices[matrix].first };
  }

  coordinates(matrix, position) {
    const [, rows, cols] = this.header.matrices[matrix].shape;
    return [Math.floor(position / cols) % rows, position % cols];
  }

  // a12, or a[1,12] where indices have two digits.
  name(matrix, position) {
    const { name, shape } = this.header.matrices[matrix], [row, col] = this.coordinates(matrix, position);
    return Math.max(shape[1], shape[2]) <= 10 ? `${name}${row}${col}` : `${name}[${row},${col}]`;
  }

  nameOf(number) {
    const element = this.element(number);
    return element ? this.name(element.matrix, element.position) : "0";
  }

  valueOf(number) {
    const element = this.element(number);
    return element ? this.header.matrices[element.matrix].before[element.position] : 0;
  }

  thread(linear) {
    const [x, y] = this.header.block;
    return [linear % x, Math.floor(linear / x) % y, Math.floor(linear / x / y)];
  }

  get threads() {
    return this.header.block.reduce((product, extent) => product * extent);
  }
}
