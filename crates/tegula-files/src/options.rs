//! Options of readers, and helpers that they share.

use std::io::{self, Read};

use crate::{ErrorMessage, display};

/// Options for [`read`](crate::read()).
#[derive(Clone, Copy)]
pub struct ReadOptions<'a> {
    /// Limit of allocations in bytes, memory-mapped files excluded.
    pub memory_limit: u64,
    /// Progress callback with bytes read and total bytes, 0 if unknown.
    pub progress: &'a dyn Fn(u64, u64),
}

impl Default for ReadOptions<'_> {
    /// No memory limit and no progress callback.
    fn default() -> Self {
        ReadOptions { memory_limit: u64::MAX, progress: &|_, _| {} }
    }
}

impl ReadOptions<'_> {
    /// Rejects allocations of more than the memory limit.
    pub(crate) fn check_memory(&self, bytes: u64) -> Result<(), ErrorMessage> {
        if bytes <= self.memory_limit {
            return Ok(());
        }
        Err(format!("does not fit in memory: {bytes} bytes are needed, the limit is {}", self.memory_limit))
    }
}

/// Fills the buffer, or as much of it as the source provides; returns the number of bytes.
pub(crate) fn read_up_to(source: &mut dyn Read, buffer: &mut [u8]) -> Result<usize, ErrorMessage> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("cannot be read: {}", display::error(&error))),
        }
    }
    Ok(filled)
}

/// Reader that reports progress and retries interrupted reads.
pub(crate) struct ProgressReader<'a, R> {
    inner: R,
    done: u64,
    total: u64,
    progress: &'a dyn Fn(u64, u64),
}

impl<'a, R: Read> ProgressReader<'a, R> {
    pub fn new(inner: R, total: u64, options: &ReadOptions<'a>) -> Self {
        ProgressReader { inner, done: 0, total, progress: options.progress }
    }
}

impl<R: Read> Read for ProgressReader<'_, R> {
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
