//! Caches, counted exactly: which of a nest's accesses miss.

use tegula_core::element::Type;
use tegula_core::error::{Error, Result};
use tegula_core::host;
use tegula_core::matrix::Shape;

use super::Nest;
use super::walk::{Access, walk};

/// A level of cache. A line may lie in any of the ways of one set, which is its number modulo the number of sets; of a set that
/// is full, the line that was not used for longest makes room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cache {
    /// All of it.
    pub bytes: usize,
    /// Lines of a set.
    pub ways: usize,
    /// Bytes of a line.
    pub line: usize,
}

impl Cache {
    /// A first level of today: 48 KiB.
    pub const L1: Cache = Cache { bytes: 48 << 10, ways: 12, line: 64 };
    /// A second level of today: 2 MiB.
    pub const L2: Cache = Cache { bytes: 2 << 20, ways: 16, line: 64 };

    /// How many sets it has.
    ///
    /// # Errors
    /// [`Error::Shape`] if its bytes are not a whole number of sets of whole elements, more than none.
    fn sets(self, element: usize) -> Result<usize> {
        let set = self.ways.checked_mul(self.line).filter(|&set| set > 0 && self.line.is_multiple_of(element));
        let sets = set.filter(|set| self.bytes.is_multiple_of(*set)).map(|set| self.bytes / set);
        sets.filter(|&sets| sets > 0).ok_or_else(|| {
            let Cache { bytes, ways, line } = self;
            Error::Shape(format!(
                "{bytes} bytes are no cache of {ways} ways and lines of {line} bytes for elements of {element}; take a multiple of ways × \
                 line, and lines of whole elements"
            ))
        })
    }
}

/// What a nest asks of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Elements read of A, B and C.
    pub reads: [u64; 3],
    /// Elements written, which are of C.
    pub writes: u64,
    /// Accesses that missed each level, the nearest first. A level sees what missed the one before, a write as it does a read; lines
    /// that are written back are not counted.
    pub misses: Vec<u64>,
}

/// What C += A·B asks of memory, for m, n and k: the caches are empty before, and A, B and C lie one behind the other, each from the next line on.
///
/// It is exact for this model, which knows no prefetcher and no other program: the same runs, counted by Cachegrind, differ by what
/// the program does besides.
///
/// # Errors
/// [`Error::Shape`] if the tile size is 0, the sizes are out of reach, or a cache is none; [`Error::OutOfMemory`].
pub fn traffic(nest: Nest, tile: usize, extents: [usize; 3], ty: Type, caches: &[Cache]) -> Result<Traffic> {
    let starts = starts(extents, ty, caches)?;
    let mut levels = caches.iter().map(|&cache| Level::new(cache, ty)).collect::<Result<Vec<_>>>()?;
    let (mut reads, mut writes) = ([0; 3], 0);
    walk(nest, tile, extents, |Access { operand, place, write }| {
        *(if write { &mut writes } else { &mut reads[operand as usize] }) += 1;
        let address = starts[operand as usize] + place * ty.size();
        // The search ends at the level that has it.
        let _ = levels.iter_mut().any(|level| level.hits(address));
    })?;
    Ok(Traffic { reads, writes, misses: levels.iter().map(|level| level.misses).collect() })
}

/// Where A, B and C begin.
fn starts([m, n, depth]: [usize; 3], ty: Type, caches: &[Cache]) -> Result<[usize; 3]> {
    let line = caches.iter().map(|cache| cache.line).max().unwrap_or(1).max(1);
    let (mut starts, mut next) = ([0; 3], 0usize);
    for (start, shape) in starts.iter_mut().zip([Shape::new(m, depth), Shape::new(depth, n), Shape::new(m, n)]) {
        *start = next;
        let end = shape.len()?.checked_mul(ty.size()).and_then(|bytes| next.checked_add(bytes));
        let end = end.and_then(|end| end.checked_next_multiple_of(line));
        next =
            end.ok_or_else(|| Error::Shape(format!("a {shape} matrix of {ty} has no addresses; take a smaller one")))?;
    }
    Ok(starts)
}

/// A cache with what lies in it.
struct Level {
    line: usize,
    ways: usize,
    sets: usize,
    /// Set by set, the ways of a set from the latest used to the earliest. Each is a line's number, counted from 1; 0 is nothing yet.
    lines: Vec<usize>,
    misses: u64,
}

impl Level {
    fn new(cache: Cache, ty: Type) -> Result<Level> {
        let sets = cache.sets(ty.size())?;
        let mut lines = host::room(&[sets, cache.ways], || format!("a model of a cache of {} bytes", cache.bytes))?;
        lines.resize(sets * cache.ways, 0);
        Ok(Level { line: cache.line, ways: cache.ways, sets, lines, misses: 0 })
    }

    /// Whether an address lies in it. Afterwards it does.
    fn hits(&mut self, address: usize) -> bool {
        let number = address / self.line;
        let set = &mut self.lines[number % self.sets * self.ways..][..self.ways];
        let way = set.iter().position(|&line| line == number + 1);
        set[..=way.unwrap_or(self.ways - 1)].rotate_right(1);
        set[0] = number + 1;
        self.misses += u64::from(way.is_none());
        way.is_some()
    }
}
