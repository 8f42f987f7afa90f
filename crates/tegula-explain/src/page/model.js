// Memory after each tick: shared arrays, accumulators, C.

// The positions of the timeline: before the first tick, each tick, and each slide, which has no
// tick.
function framesOf(header) {
  const frames = [{ phase: -1, tick: -1 }];
  header.phases.forEach((phase, number) => {
    const [from, to] = phase.ticks;
    if (from === to) frames.push({ phase: number, tick: from - 1, slide: true });
    for (let tick = from; tick < to; tick++) frames.push({ phase: number, tick });
  });
  return frames;
}

class TraceModel {
  constructor(trace) {
    const { header, events } = trace;
    this.header = header;
    this.events = events;
    this.frames = framesOf(header);
    // Events by block, and all stores to global memory.
    this.ofBlock = new Map();
    this.writes = [];
    for (const event of events) {
      const key = event.block.join();
      if (!this.ofBlock.has(key)) this.ofBlock.set(key, []);
      this.ofBlock.get(key).push(event);
      if (this.operation(event.tick).kind === "global-store") this.writes.push(event);
    }
  }

  operation(tick) {
    return this.header.operations[this.header.ticks[tick].operation];
  }

  // The state of a block after a tick.
  after(block, tick) {
    const state = { shared: this.header.shared.map(() => new Map()), accumulators: new Map(), written: this.header.matrices.map(() => new Map()) };
    for (const event of this.ofBlock.get(block.join()) ?? []) {
      if (event.tick > tick) break;
      const { kind, memory } = this.operation(event.tick);
      if (kind === "shared-store") {
        event.elements.forEach((element, i) => state.shared[memory].set(element, { value: event.values[i], origin: event.origins[i], tick: event.tick }));
      } else if (kind === "mul-add") {
        lanesOf(event).forEach((lane, i) => state.accumulators.set(event.warp * 32 + lane, event.values[i]));
      }
    }
    for (const event of this.writes) {
      if (event.tick > tick) break;
      const { memory } = this.operation(event.tick);
      event.elements.forEach((element, i) => state.written[memory].set(element, event.values[i]));
    }
    return state;
  }

  // The events of a block in a tick.
  at(block, tick) {
    return (this.ofBlock.get(block.join()) ?? []).filter((event) => event.tick === tick);
  }

  // The products, stores and loads of a thread.
  ofThread(block, thread) {
    const warp = Math.floor(thread / 32), lane = thread % 32, terms = [], stores = [], loads = [];
    for (const event of this.ofBlock.get(block.join()) ?? []) {
      const i = event.warp === warp ? entryOf(event, lane) : -1;
      if (i < 0) continue;
      const { kind, memory } = this.operation(event.tick), { tick } = event;
      if (kind === "mul-add") terms.push({ tick, step: this.header.ticks[tick].step, a: event.origins[i], b: event.originsB[i], accumulator: event.values[i] });
      if (kind === "global-store") stores.push({ tick, memory, element: event.elements[i], value: event.values[i] });
      if (kind === "global-load") loads.push({ tick, memory, element: event.elements[i], value: event.values[i] });
    }
    return { terms, stores, loads };
  }

  // The matrix element with this provenance number.
  element(number) {
    const matrix = this.header.matrices.findIndex(({ firstOrigin, shape: [b, r, c] }) => number >= firstOrigin && number < firstOrigin + b * r * c);
    return matrix < 0 ? null : { matrix, position: number - this.header.matrices[matrix].firstOrigin };
  }

  coordinates(matrix, position) {
    const [, rows, cols] = this.header.matrices[matrix].shape;
    return [Math.floor(position / cols) % rows, position % cols];
  }

  // a12, or a[1,12] for matrices with indices of two digits.
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
    return element ? this.header.matrices[element.matrix].initial[element.position] : 0;
  }

  thread(linear) {
    const [x, y] = this.header.block;
    return [linear % x, Math.floor(linear / x) % y, Math.floor(linear / x / y)];
  }

  get threads() {
    return this.header.block.reduce((product, extent) => product * extent);
  }
}
