//! A trace as bytes, and back.
//!
//! A file is the line `tegula trace 1` and then, as a raw DEFLATE stream (RFC 1951):
//!
//! | what | how |
//! |---|---|
//! | length of the header in bytes | 4 bytes |
//! | the header ([`Header`]) | JSON |
//! | for each matrix: how many values from before the launch follow | 4 bytes |
//! | those values, row after row | as many bytes each as the type has |
//! | how many events follow | 4 bytes |
//! | the events, one after the other | below |
//!
//! All of it is little-endian. An event is:
//!
//! | what | how | in |
//! |---|---|---|
//! | how many moments after that of the event before, or after moment 0 | varint | all |
//! | the block's x, y, z; the warp | varints | all |
//! | one bit a lane that took part | 4 bytes | all |
//! | passes, conflicts | varints | accesses |
//! | elements, a lane each | differences | accesses |
//! | what the number is a copy of, a lane each | differences | accesses to shared memory |
//! | what the first factors are copies of, and the second | differences | multiply-adds |
//! | numbers, a lane each | as many bytes as the type has | all but barriers and waits |
//!
//! A varint has 7 bits a byte, lowest first, the top bit set in all bytes but the last. Differences are from one lane that took part
//! to the next, from 0 at first, as varints of 2d where d ≥ 0 and −2d − 1 where it is negative.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

use super::{Deed, Does, Event, Header, MatrixOf, Operation, Spot, Trace, VERSION};
use crate::error::{Error, Result};

/// What a file begins with.
const MAGIC: &[u8] = b"tegula trace 1\n";

/// The most bytes a trace may unpack to.
const LARGEST: u64 = 1 << 30;

/// Elements that a matrix may have.
const MOST_ELEMENTS: u64 = 1 << 53;

impl Trace {
    /// Writes the trace as a file; its form stands in the documentation of this file's source.
    ///
    /// # Errors
    /// [`Error::Output`] where `to` cannot be written, [`Error::Unreadable`] for a trace that nobody could read again.
    pub fn write(&self, mut to: impl Write) -> Result<()> {
        to.write_all(MAGIC)?;
        let mut packed = DeflateEncoder::new(to, Compression::best());
        packed.write_all(&self.unpacked()?)?;
        packed.finish()?.flush()?;
        Ok(())
    }

    fn unpacked(&self) -> Result<Vec<u8>> {
        let header = serde_json::to_vec(&self.header).map_err(std::io::Error::from)?;
        let mut bytes = Vec::new();
        put_count(&mut bytes, header.len())?;
        bytes.extend(header);
        for MatrixOf { ty, before, .. } in &self.header.matrices {
            put_count(&mut bytes, before.len())?;
            put_numbers(&mut bytes, before, ty.size());
        }
        put_count(&mut bytes, self.events.len())?;
        let mut moment = 0;
        for event in &self.events {
            let further = event.moment.checked_sub(moment).ok_or_else(|| unreadable("its events are out of order"))?;
            put_varint(&mut bytes, further.into());
            moment = event.moment;
            let operation = self.header.moments.get(moment as usize).map(|moment| moment.operation as usize);
            let operation = operation.and_then(|operation| self.header.operations.get(operation));
            put_event(&mut bytes, event, operation.ok_or_else(|| unreadable("an event is of no moment"))?);
        }
        Ok(bytes)
    }

    /// Reads what [`Trace::write`] wrote.
    ///
    /// # Errors
    /// [`Error::Unreadable`] for anything else.
    pub fn read(mut from: impl Read) -> Result<Trace> {
        let mut magic = [0; MAGIC.len()];
        from.read_exact(&mut magic).map_err(|_| unreadable("it ends before it begins"))?;
        if magic != MAGIC {
            return Err(unreadable("it does not begin with \"tegula trace 1\""));
        }
        let mut bytes = Vec::new();
        let mut unpacked = DeflateDecoder::new(from).take(LARGEST + 1);
        unpacked.read_to_end(&mut bytes).map_err(|_| unreadable("its packing is damaged"))?;
        if bytes.len() as u64 > LARGEST {
            return Err(unreadable("it is too large"));
        }
        parse(&mut Bytes(&bytes))
    }
}

fn parse(bytes: &mut Bytes<'_>) -> Result<Trace> {
    let length = bytes.count()?;
    let mut header: Header =
        serde_json::from_slice(bytes.take(length)?).map_err(|why| unreadable(&format!("its header: {why}")))?;
    check(&header)?;
    for matrix in &mut header.matrices {
        let count = bytes.count()?;
        matrix.before = bytes.numbers(count, matrix.ty.size())?;
        if count > 0 && count as u64 != extent(matrix.shape) {
            return Err(unreadable("a matrix has another number of elements than its shape"));
        }
    }
    let mut events = Vec::new();
    let mut moment: u32 = 0;
    for _ in 0..bytes.count()? {
        let further = u32::try_from(bytes.varint()?).ok().and_then(|further| moment.checked_add(further));
        moment = further.filter(|&m| (m as usize) < header.moments.len()).ok_or_else(ends)?;
        let operation = &header.operations[header.moments[moment as usize].operation as usize];
        let event = Event { moment, ..bytes.event(operation)? };
        if !is_inside(&header, operation, &event) {
            return Err(unreadable("an event speaks of what is not there"));
        }
        events.push(event);
    }
    match bytes.0 {
        [] => Ok(Trace { header, events }),
        _ => Err(unreadable("something follows its last event")),
    }
}

/// Whether everything that is named by its position is there.
fn check(header: &Header) -> Result<()> {
    let Header { sites, operations, moments, acts, matrices, shared, .. } = header;
    let is_there = |operation: &Operation| {
        let memory = operation.memory as usize;
        (operation.site as usize) < sites.len()
            && match operation.does {
                Does::GlobalLoad | Does::GlobalStore => memory < matrices.len() && operation.ty.is_some(),
                Does::SharedLoad | Does::SharedStore => memory < shared.len() && operation.ty.is_some(),
                Does::Barrier | Does::Wait => true,
                Does::MulAdd | Does::Matrix | Does::Arithmetic => operation.ty.is_some(),
            }
    };
    let in_order = |[from, to]: [u32; 2]| from <= to && to as usize <= moments.len();
    if header.version != VERSION {
        return Err(unreadable(&format!("it is of version {}, and this reads version {VERSION}", header.version)));
    }
    if !operations.iter().all(is_there)
        || !moments.iter().all(|moment| (moment.operation as usize) < operations.len())
        || !acts.iter().all(|act| in_order(act.moments))
        || !header.lines.iter().all(|(site, _)| (*site as usize) < sites.len())
        || matrices.iter().any(|matrix| extent(matrix.shape) > MOST_ELEMENTS || matrix.first > MOST_ELEMENTS)
        || !header.deeds.iter().all(|deed| is_known(header, deed))
        || !(1..=1024).contains(&extent(header.block.map(u64::from)))
        || !header.findings.iter().filter_map(|f| f.moment).all(|moment| (moment as usize) < moments.len())
    {
        return Err(unreadable("its header speaks of what is not there"));
    }
    Ok(())
}

/// The number of elements of a matrix; far too many where they cannot be counted.
fn extent(shape: [u64; 3]) -> u64 {
    if shape.contains(&0) { 0 } else { shape.into_iter().fold(1, u64::saturating_mul) }
}

/// Whether a deed is of a warp that there can be, on arrays that there are.
fn is_known(header: &Header, deed: &Deed) -> bool {
    let is_there = |&[array, index]: &Spot| {
        header.shared.get(array as usize).is_some_and(|array| array.dims.first().is_some_and(|&count| index < count))
    };
    deed.warp < 32 && deed.does.spots().iter().all(is_there)
}

/// Whether threads and elements are ones that there are.
fn is_inside(header: &Header, operation: &Operation, event: &Event) -> bool {
    let elements = match operation.does {
        Does::GlobalLoad | Does::GlobalStore => extent(header.matrices[operation.memory as usize].shape),
        Does::SharedLoad | Does::SharedStore => header.shared[operation.memory as usize]
            .dims
            .iter()
            .fold(1, |all, &dim| u64::saturating_mul(all, dim.into())),
        _ => 0,
    };
    // A block has at most 1024 threads.
    event.warp < 32 && event.elements.iter().all(|&element| element < elements)
}

fn put_event(bytes: &mut Vec<u8>, event: &Event, operation: &Operation) {
    event.block.into_iter().chain([event.warp]).for_each(|number| put_varint(bytes, number.into()));
    bytes.extend(event.lanes.to_le_bytes());
    if operation.does.is_access() {
        put_varint(bytes, event.passes.into());
        put_varint(bytes, event.conflicts.into());
        put_differences(bytes, &event.elements);
    }
    if matches!(operation.does, Does::SharedLoad | Does::SharedStore | Does::MulAdd) {
        put_differences(bytes, &event.from);
    }
    if operation.does == Does::MulAdd {
        put_differences(bytes, &event.other);
    }
    put_numbers(bytes, &event.bits, operation.ty.map_or(0, |ty| ty.size()));
}

fn put_count(bytes: &mut Vec<u8>, count: usize) -> Result<()> {
    let count = u32::try_from(count).map_err(|_| std::io::Error::other("more than a file holds"))?;
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

fn put_differences(bytes: &mut Vec<u8>, numbers: &[u64]) {
    let mut last = 0u64;
    for &number in numbers {
        let difference = number.wrapping_sub(last) as i64;
        put_varint(bytes, (difference << 1 ^ difference >> 63) as u64);
        last = number;
    }
}

/// What is left to be read.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(ends)?;
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
        Err(ends())
    }

    fn small(&mut self) -> Result<u32> {
        u32::try_from(self.varint()?).map_err(|_| ends())
    }

    fn differences(&mut self, count: usize) -> Result<Vec<u64>> {
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
        if operation.does.is_access() {
            (event.passes, event.conflicts) = (self.small()?, self.small()?);
            event.elements = self.differences(count)?;
        }
        if matches!(operation.does, Does::SharedLoad | Does::SharedStore | Does::MulAdd) {
            event.from = self.differences(count)?;
        }
        if operation.does == Does::MulAdd {
            event.other = self.differences(count)?;
        }
        if let Some(ty) = operation.ty {
            event.bits = self.numbers(count, ty.size())?;
        }
        Ok(event)
    }
}

fn unreadable(why: &str) -> Error {
    Error::Unreadable(why.into())
}

fn ends() -> Error {
    unreadable("it is damaged")
}
