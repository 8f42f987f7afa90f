//! What every reader is told, and what they share: how much memory there is, and who wants to know how far they are.

use std::io::{self, Read};

use crate::{Refusal, show};

/// How a file is read.
#[derive(Clone, Copy)]
pub struct Reading<'a> {
    /// Bytes that may be allocated. What is mapped does not count.
    pub room: u64,
    /// Is told how many bytes are read, of how many; 0 of those where their number is not known.
    pub progress: &'a dyn Fn(u64, u64),
}

impl Default for Reading<'_> {
    /// All the memory there is, and nobody is told.
    fn default() -> Self {
        Reading { room: u64::MAX, progress: &|_, _| {} }
    }
}

impl Reading<'_> {
    /// Refuses what takes more memory than there is room.
    pub(crate) fn check_room(&self, bytes: u64) -> Result<(), Refusal> {
        if bytes <= self.room {
            return Ok(());
        }
        Err(format!("does not fit in memory: it takes {bytes} bytes, {} may be used", self.room))
    }
}

/// Fills as much of the buffer as the source has.
pub(crate) fn read_up_to(source: &mut dyn Read, buffer: &mut [u8]) -> Result<usize, Refusal> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("cannot be read: {}", show::error(&error))),
        }
    }
    Ok(filled)
}

/// A source that tells how far it is, and goes on where a signal interrupts it.
pub(crate) struct Watched<'a, R> {
    inner: R,
    done: u64,
    total: u64,
    progress: &'a dyn Fn(u64, u64),
}

impl<'a, R: Read> Watched<'a, R> {
    pub fn new(inner: R, total: u64, reading: &Reading<'a>) -> Self {
        Watched { inner, done: 0, total, progress: reading.progress }
    }
}

impl<R: Read> Read for Watched<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = loop {
            match self.inner.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => break done?,
            }
        };
        self.done += count as u64;
        (self.progress)(self.done, self.total);
        Ok(count)
    }
}
