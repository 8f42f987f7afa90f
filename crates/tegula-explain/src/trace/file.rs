//! The serialized form of a trace.
//!
//! A file is the line `tegula trace 1` and then a raw DEFLATE stream (RFC 1951) of:
//!
//! | field | encoding |
//! |---|---|
//! | length of the header in bytes | 4 bytes |
//! | the header ([`Header`]) | JSON |
//! | for each matrix: the number of initial values that follow | 4 bytes |
//! | the values, in row-major order | as many bytes each as the type has |
//! | the number of events | 4 bytes |
//! | the events | below |
//!
//! All of it is little-endian. An event is:
//!
//! | field | encoding | events that have it |
//! |---|---|---|
//! | ticks since the previous event, or since tick 0 | varint | all |
//! | the block's x, y, z; the warp | varints | all |
//! | the active lanes, one bit each | 4 bytes | all |
//! | transactions, conflicts | varints | accesses |
//! | element of each lane | deltas | accesses |
//! | origin of each lane's value | deltas | accesses to shared memory |
//! | origins of the first operand, then of the second | deltas | multiply-adds |
//! | value of each lane | as many bytes as the type has | all but barriers and waits |
//!
//! A varint (LEB128) has 7 bits a byte, lowest first; the top bit is set in all bytes but the last.
//! Deltas run from one active lane to the next, starting at 0. They are zigzag varints: 2d where
//! d ≥ 0, −2d − 1 where d < 0.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

use super::{Event, Header, MatrixInfo, Operation, OperationKind, PipelineEvent, SharedSlot, Trace, VERSION};
use crate::error::{Error, Result};

/// The signature line of a file.
const MAGIC: &[u8] = b"tegula trace 1\n";

/// The limit of the decompressed size, in bytes.
const MAX_BYTES: u64 = 1 << 30;

/// The limit of a matrix, in elements: f64, the number type of the page, counts so far exactly.
const MAX_ELEMENTS: u64 = 1 << 53;

impl Trace {
    /// Serializes the trace; the module's source documents the format.
    ///
    /// # Errors
    /// [`Error::Output`] if `to` cannot be written, [`Error::InvalidTrace`] if events are
    /// inconsistent with the header.
    pub fn write(&self, mut to: impl Write) -> Result<()> {
        to.write_all(MAGIC)?;
        // Best compression takes longer, and traces are no smaller by it.
        let mut packed = DeflateEncoder::new(to, Compression::default());
        packed.write_all(&self.to_bytes()?)?;
        packed.finish()?.flush()?;
        Ok(())
    }

    fn to_bytes(&self) -> Result<Vec<u8>> {
        let header = serde_json::to_vec(&self.header).map_err(std::io::Error::from)?;
        let mut bytes = Vec::new();
        put_count(&mut bytes, header.len())?;
        bytes.extend(header);
        for MatrixInfo { ty, initial, .. } in &self.header.matrices {
            put_count(&mut bytes, initial.len())?;
            put_numbers(&mut bytes, initial, ty.size());
        }
        put_count(&mut bytes, self.events.len())?;
        let mut tick = 0;
        for event in &self.events {
            let delta = event.tick.checked_sub(tick).ok_or_else(|| invalid("events out of order"))?;
            put_varint(&mut bytes, delta.into());
            tick = event.tick;
            let operation = self.header.ticks.get(tick as usize).map(|tick| tick.operation as usize);
            let operation = operation.and_then(|operation| self.header.operations.get(operation));
            put_event(&mut bytes, event, operation.ok_or_else(|| invalid("event with an unknown tick"))?);
        }
        Ok(bytes)
    }

    /// Reads a trace that [`Trace::write`] wrote.
    ///
    /// # Errors
    /// [`Error::InvalidTrace`] for any other input.
    pub fn read(mut from: impl Read) -> Result<Trace> {
        let mut magic = [0; MAGIC.len()];
        from.read_exact(&mut magic).map_err(|_| invalid("truncated signature"))?;
        if magic != MAGIC {
            return Err(invalid("the first line is not \"tegula trace 1\""));
        }
        let mut bytes = Vec::new();
        let mut unpacked = DeflateDecoder::new(from).take(MAX_BYTES + 1);
        unpacked.read_to_end(&mut bytes).map_err(|_| invalid("corrupt DEFLATE stream"))?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(invalid("more than 1 GiB of data"));
        }
        parse(&mut Bytes(&bytes))
    }
}

fn parse(bytes: &mut Bytes<'_>) -> Result<Trace> {
    let length = bytes.count()?;
    let mut header: Header =
        serde_json::from_slice(bytes.take(length)?).map_err(|error| invalid(&format!("header: {error}")))?;
    check(&header)?;
    for matrix in &mut header.matrices {
        let count = bytes.count()?;
        matrix.initial = bytes.numbers(count, matrix.ty.size())?;
        if count > 0 && count as u64 != extent(matrix.shape) {
            return Err(invalid("a matrix's values do not match its shape"));
        }
    }
    let mut events = Vec::new();
    let mut tick: u32 = 0;
    for _ in 0..bytes.count()? {
        let next = u32::try_from(bytes.varint()?).ok().and_then(|delta| tick.checked_add(delta));
        tick = next.filter(|&next| (next as usize) < header.ticks.len()).ok_or_else(corrupt)?;
        let operation = &header.operations[header.ticks[tick as usize].operation as usize];
        let event = Event { tick, ..bytes.event(operation)? };
        if !is_inside(&header, operation, &event) {
            return Err(invalid("event with an unknown thread or element"));
        }
        events.push(event);
    }
    match bytes.0 {
        [] => Ok(Trace { header, events }),
        _ => Err(invalid("data after the last event")),
    }
}

/// Rejects a header with a position outside the list that it refers to.
fn check(header: &Header) -> Result<()> {
    let Header { sites, operations, ticks, phases, matrices, shared, .. } = header;
    let is_valid = |operation: &Operation| {
        let memory = operation.memory as usize;
        (operation.site as usize) < sites.len()
            && match operation.kind {
                OperationKind::GlobalLoad | OperationKind::GlobalStore => {
                    memory < matrices.len() && operation.ty.is_some()
                }
                OperationKind::SharedLoad | OperationKind::SharedStore => {
                    memory < shared.len() && operation.ty.is_some()
                }
                OperationKind::Barrier | OperationKind::Wait => true,
                OperationKind::MulAdd | OperationKind::Matrix | OperationKind::Arithmetic => operation.ty.is_some(),
            }
    };
    let in_order = |[from, to]: [u32; 2]| from <= to && to as usize <= ticks.len();
    if header.version != VERSION {
        return Err(invalid(&format!("version {}; supported: {VERSION}", header.version)));
    }
    if !operations.iter().all(is_valid)
        || !ticks.iter().all(|tick| (tick.operation as usize) < operations.len())
        || !phases.iter().all(|phase| in_order(phase.ticks))
        || !header.lines.iter().all(|(site, _)| (*site as usize) < sites.len())
        || matrices.iter().any(|matrix| extent(matrix.shape) > MAX_ELEMENTS || matrix.first_origin > MAX_ELEMENTS)
        || !header.pipeline.iter().all(|event| is_valid_pipeline_event(header, event))
        || !(1..=1024).contains(&extent(header.block.map(u64::from)))
        || !header.findings.iter().filter_map(|f| f.tick).all(|tick| (tick as usize) < ticks.len())
    {
        return Err(invalid("header with a position out of range"));
    }
    Ok(())
}

/// The number of elements of a matrix; saturates at `u64::MAX`.
fn extent(shape: [u64; 3]) -> u64 {
    if shape.contains(&0) { 0 } else { shape.into_iter().fold(1, u64::saturating_mul) }
}

/// Whether a pipeline event has a possible warp and existing arrays.
fn is_valid_pipeline_event(header: &Header, event: &PipelineEvent) -> bool {
    let exists = |&[array, index]: &SharedSlot| {
        header.shared.get(array as usize).is_some_and(|array| array.dims.first().is_some_and(|&count| index < count))
    };
    event.warp < 32 && event.op.slots().iter().all(exists)
}

/// Whether the event's threads and elements exist.
fn is_inside(header: &Header, operation: &Operation, event: &Event) -> bool {
    let elements = match operation.kind {
        OperationKind::GlobalLoad | OperationKind::GlobalStore => {
            extent(header.matrices[operation.memory as usize].shape)
        }
        OperationKind::SharedLoad | OperationKind::SharedStore => header.shared[operation.memory as usize]
            .dims
            .iter()
            .fold(1, |len, &dim| u64::saturating_mul(len, dim.into())),
        _ => 0,
    };
    // A block has at most 1024 threads.
    event.warp < 32 && event.elements.iter().all(|&element| element < elements)
}

fn put_event(bytes: &mut Vec<u8>, event: &Event, operation: &Operation) {
    event.block.into_iter().chain([event.warp]).for_each(|number| put_varint(bytes, number.into()));
    bytes.extend(event.lanes.to_le_bytes());
    if operation.kind.is_access() {
        put_varint(bytes, event.transactions.into());
        put_varint(bytes, event.conflicts.into());
        put_deltas(bytes, &event.elements);
    }
    if matches!(operation.kind, OperationKind::SharedLoad | OperationKind::SharedStore | OperationKind::MulAdd) {
        put_deltas(bytes, &event.origins);
    }
    if operation.kind == OperationKind::MulAdd {
        put_deltas(bytes, &event.origins_b);
    }
    put_numbers(bytes, &event.bits, operation.ty.map_or(0, |ty| ty.size()));
}

fn put_count(bytes: &mut Vec<u8>, count: usize) -> Result<()> {
    let count = u32::try_from(count).map_err(|_| std::io::Error::other("more than 2^32 - 1 entries"))?;
    bytes.extend(count.to_le_bytes());
    Ok(())
}

fn put_numbers(bytes: &mut Vec<u8>, numbers: &[u64], size: usize) {
    numbers.iter().for_each(|number| bytes.extend(&number.to_le_bytes()[..size]));
}

fn put_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn put_deltas(bytes: &mut Vec<u8>, numbers: &[u64]) {
    let mut last = 0u64;
    for &number in numbers {
        let delta = number.wrapping_sub(last) as i64;
        put_varint(bytes, (delta << 1 ^ delta >> 63) as u64);
        last = number;
    }
}

/// The bytes not yet read.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(corrupt)?;
        self.0 = rest;
        Ok(taken)
    }

    fn count(&mut self) -> Result<usize> {
        Ok(self.number(4)? as usize)
    }

    fn number(&mut self, size: usize) -> Result<u64> {
        let mut bytes = [0; 8];
        bytes[..size].copy_from_slice(self.take(size)?);
        Ok(u64::from_le_bytes(bytes))
    }

    fn numbers(&mut self, count: usize, size: usize) -> Result<Vec<u64>> {
        (0..count).map(|_| self.number(size)).collect()
    }

    fn varint(&mut self) -> Result<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(corrupt())
    }

    fn small(&mut self) -> Result<u32> {
        u32::try_from(self.varint()?).map_err(|_| corrupt())
    }

    fn deltas(&mut self, count: usize) -> Result<Vec<u64>> {
        let mut last = 0u64;
        let next = |_| {
            let folded = self.varint()?;
            last = last.wrapping_add(folded >> 1 ^ 0u64.wrapping_sub(folded & 1));
            Ok(last)
        };
        (0..count).map(next).collect()
    }

    fn event(&mut self, operation: &Operation) -> Result<Event> {
        let block = [self.small()?, self.small()?, self.small()?];
        let (warp, lanes) = (self.small()?, self.number(4)? as u32);
        let count = lanes.count_ones() as usize;
        let mut event = Event { block, warp, lanes, ..Event::default() };
        if operation.kind.is_access() {
            (event.transactions, event.conflicts) = (self.small()?, self.small()?);
            event.elements = self.deltas(count)?;
        }
        if matches!(operation.kind, OperationKind::SharedLoad | OperationKind::SharedStore | OperationKind::MulAdd) {
            event.origins = self.deltas(count)?;
        }
        if operation.kind == OperationKind::MulAdd {
            event.origins_b = self.deltas(count)?;
        }
        if let Some(ty) = operation.ty {
            event.bits = self.numbers(count, ty.size())?;
        }
        Ok(event)
    }
}

fn invalid(reason: &str) -> Error {
    Error::InvalidTrace(reason.into())
}

fn corrupt() -> Error {
    invalid("corrupt or truncated data")
}
