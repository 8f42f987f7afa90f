//! An exact cache model: the accesses of a loop nest that miss each level.

use tegula_core::element::Type;
use tegula_core::error::{Error, Result};
use tegula_core::host;
use tegula_core::matrix::Shape;

use super::Nest;
use super::walk::{Access, walk};

/// A set-associative cache level with LRU replacement.
///
/// The set of a line is its number modulo the number of sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cache {
    /// The capacity.
    pub bytes: usize,
    /// Lines per set.
    pub ways: usize,
    /// Bytes per line.
    pub line: usize,
}

impl Cache {
    /// A current first-level cache: 48 KiB.
    pub const L1: Cache = Cache { bytes: 48 << 10, ways: 12, line: 64 };
    /// A current second-level cache: 2 MiB.
    pub const L2: Cache = Cache { bytes: 2 << 20, ways: 16, line: 64 };

    /// The number of sets.
    ///
    /// # Errors
    /// [`Error::Shape`] unless the capacity is a positive multiple of ways × line and a line a
    /// multiple of the element.
    fn sets(self, element: usize) -> Result<usize> {
        let set = self.ways.checked_mul(self.line).filter(|&set| set > 0 && self.line.is_multiple_of(element));
        let sets = set.filter(|set| self.bytes.is_multiple_of(*set)).map(|set| self.bytes / set);
        sets.filter(|&sets| sets > 0).ok_or_else(|| {
            let Cache { bytes, ways, line } = self;
            Error::Shape(format!(
                "invalid cache: {bytes} bytes, {ways} ways, lines of {line} bytes, elements of {element} bytes; \
                 the capacity must be a multiple of ways × line, and the line of the element"
            ))
        })
    }
}

/// The memory traffic of a nest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Elements read of A, B and C.
    pub reads: [u64; 3],
    /// Elements of C written.
    pub writes: u64,
    /// Misses of each level, first level first.
    ///
    /// A level sees the misses of the previous one; writes allocate like reads. Write-backs are not
    /// counted.
    pub misses: Vec<u64>,
}

/// Counts the memory traffic of C += A·B; `extents` are m, n and k.
///
/// The caches start empty. A, B and C are contiguous and follow each other, aligned to lines. The
/// counts are exact for this model, without prefetcher and other programs; Cachegrind counts of the
/// same runs differ by the rest of the program.
///
/// # Errors
/// [`Error::Shape`] for a tile of 0, extents that overflow, or an invalid cache;
/// [`Error::OutOfMemory`].
pub fn traffic(nest: Nest, tile: usize, extents: [usize; 3], ty: Type, caches: &[Cache]) -> Result<Traffic> {
    let starts = starts(extents, ty, caches)?;
    let mut levels = caches.iter().map(|&cache| Level::new(cache, ty)).collect::<Result<Vec<_>>>()?;
    let (mut reads, mut writes) = ([0; 3], 0);
    walk(nest, tile, extents, |Access { operand, index, write }| {
        *(if write { &mut writes } else { &mut reads[operand as usize] }) += 1;
        let address = starts[operand as usize] + index * ty.size();
        // The search ends at the first level that hits.
        let _ = levels.iter_mut().any(|level| level.hits(address));
    })?;
    Ok(Traffic { reads, writes, misses: levels.iter().map(|level| level.misses).collect() })
}

/// Byte addresses of A, B and C.
fn starts([m, n, depth]: [usize; 3], ty: Type, caches: &[Cache]) -> Result<[usize; 3]> {
    let line = caches.iter().map(|cache| cache.line).max().unwrap_or(1).max(1);
    let (mut starts, mut next) = ([0; 3], 0usize);
    for (start, shape) in starts.iter_mut().zip([Shape::new(m, depth), Shape::new(depth, n), Shape::new(m, n)]) {
        *start = next;
        let end = shape.len()?.checked_mul(ty.size()).and_then(|bytes| next.checked_add(bytes));
        let end = end.and_then(|end| end.checked_next_multiple_of(line));
        next = end.ok_or_else(|| {
            Error::Shape(format!("a {shape} matrix of {ty} exceeds the address space; use a smaller one"))
        })?;
    }
    Ok(starts)
}

/// A cache level and its lines.
struct Level {
    line: usize,
    ways: usize,
    sets: usize,
    /// Line numbers from 1 by set, most recently used first; 0 is an empty way.
    lines: Vec<usize>,
    misses: u64,
}

impl Level {
    fn new(cache: Cache, ty: Type) -> Result<Level> {
        let sets = cache.sets(ty.size())?;
        let mut lines = host::try_vec(&[sets, cache.ways], || format!("a model of a cache of {} bytes", cache.bytes))?;
        lines.resize(sets * cache.ways, 0);
        Ok(Level { line: cache.line, ways: cache.ways, sets, lines, misses: 0 })
    }

    /// Accesses an address and returns whether it hits; a miss loads the line.
    fn hits(&mut self, address: usize) -> bool {
        let number = address / self.line;
        let set = &mut self.lines[number % self.sets * self.ways..][..self.ways];
        // Most accesses are to the line used last.
        if set[0] == number + 1 {
            return true;
        }
        let way = set.iter().position(|&line| line == number + 1);
        set[..=way.unwrap_or(self.ways - 1)].rotate_right(1);
        set[0] = number + 1;
        self.misses += u64::from(way.is_none());
        way.is_some()
    }
}
