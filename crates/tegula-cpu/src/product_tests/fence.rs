//! Matrices beside guard pages: an access out of bounds kills the process.
//!
//! A masked load does not access masked lanes, so partial vectors at an edge pass.

use std::io::Write;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::*;

/// The side of a slice with the guard page.
#[derive(Clone, Copy, Debug)]
enum Edge {
    Before,
    After,
}

/// Pages of memory between two guard pages.
struct Fence {
    map: *mut libc::c_void,
    page: usize,
    bytes: usize,
}

impl Fence {
    fn new(at_least: usize) -> Self {
        // SAFETY: the map is new; all but its first and last page become accessible.
        unsafe {
            let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
            let bytes = at_least.next_multiple_of(page);
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let map = libc::mmap(null_mut(), bytes + 2 * page, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(map, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(map.byte_add(page), bytes, libc::PROT_READ | libc::PROT_WRITE), 0);
            Fence { map, page, bytes }
        }
    }

    /// `len` elements beside one of the guard pages.
    fn slice<S: Scalar + bytemuck::Pod>(&mut self, len: usize, side: Edge) -> &mut [S] {
        // SAFETY: these pages are mapped, not aliased, and filled with zeros by the system.
        let all = unsafe { std::slice::from_raw_parts_mut(self.map.byte_add(self.page).cast::<u8>(), self.bytes) };
        let all = bytemuck::cast_slice_mut(all);
        match side {
            Edge::Before => &mut all[..len],
            Edge::After => all.split_at_mut(all.len() - len).1,
        }
    }

    fn fill<S: Scalar + bytemuck::Pod>(&mut self, random: &mut Random) {
        let len = self.bytes / size_of::<S>();
        self.slice(len, Edge::Before).iter_mut().for_each(|value| *value = random.scalar::<S>());
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        // SAFETY: no slice of the map is alive.
        unsafe { libc::munmap(self.map, self.bytes + 2 * self.page) };
    }
}

/// A product of matrices beside guard pages.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "they are printed")]
struct Fenced {
    isa: Isa,
    ty: Type,
    sizes: [usize; 3],
    transposed: [bool; 3],
    side: Edge,
}

/// The current product.
static CURRENT: AtomicPtr<Fenced> = AtomicPtr::new(null_mut());

/// Prints the current product, and lets the fault kill the process.
extern "C" fn on_fault(signal: libc::c_int) {
    // SAFETY: null, or a valid pointer while `product` runs; `signal` is async-signal-safe.
    unsafe {
        if let Some(current) = CURRENT.load(Ordering::Acquire).as_ref() {
            _ = writeln!(std::io::stderr(), "out of bounds: {current:?}");
        }
        libc::signal(signal, libc::SIG_DFL);
    }
}

/// Computes a product of fenced matrices. Some sizes have a fenced bias, and some read C.
fn product<T: Element>(fences: &mut [Fence; 4], fenced: Fenced) {
    let Fenced { isa, sizes: [m, n, k], transposed, side, .. } = fenced;
    let shapes = [(m, k), (k, n), (m, n)].map(|(rows, cols)| Shape::new(rows, cols));
    let [a, b, c] = std::array::from_fn(|i| Style { transposed: transposed[i], ..Style::default() }.layout(shapes[i]));
    let [a_fence, b_fence, c_fence, bias_fence] = fences;
    let (a, b) = (View::strided(a_fence.slice::<T>(a.1, side), a.0), View::strided(b_fence.slice::<T>(b.1, side), b.0));
    let mut c = ViewMut::strided(c_fence.slice::<T::Out>(c.1, side), c.0).unwrap();
    let bias = match (m + n + k) % 3 {
        0 => None,
        1 => Some(View::new(bias_fence.slice(n, side), 1, n).unwrap()),
        _ => Some(View::new(bias_fence.slice(m, side), m, 1).unwrap()),
    };
    let beta = if k % 2 == 0 { T::Acc::ZERO } else { T::Acc::ONE };
    let epilogue = EpilogueOperands { bias, activation: Activation::None };
    CURRENT.store((&raw const fenced).cast_mut(), Ordering::Release);
    let (a, b) = (a.unwrap(), b.unwrap());
    if bias.is_none() {
        gemm_small::<T>(isa, T::Acc::ONE, &a, &b, beta, &mut c);
    }
    gemm_with_options::<T>(isa, T::Acc::ONE, a, b, beta, c, epilogue, None, None, false).unwrap();
    CURRENT.store(null_mut(), Ordering::Release);
}

/// Whether the quick run has a product: one in eight of the small ones, at random, so that each two
/// of m, n, k, the storage and the side meet. The full run adds the others.
fn chosen(random: &mut Random, [m, n, k]: [usize; 3]) -> bool {
    full() || m.max(n).max(k) > 65 || random.bits().is_multiple_of(8)
}

/// All small sizes around vectors and micro-tiles, and some sizes for each other blocking.
fn sizes() -> impl Iterator<Item = [usize; 3]> + Clone {
    let high = (1..=13).chain(31..=34).chain([49]);
    let wide = (1..=17).chain(23..=25).chain(31..=33).chain(47..=50).chain(63..=65);
    let depths = [1, 2, 3, 4, 5, 8, 17, 33];
    let small = high.flat_map(move |m| wide.clone().flat_map(move |n| depths.into_iter().map(move |k| [m, n, k])));
    let others = [
        [1, 257, 300],
        [2, 300, 19],
        [5, 270, 70],
        [33, 257, 21],
        [300, 1, 257],
        [257, 3, 5],
        [3, 5, 4099],
        [1, 1, 5001],
        [13, 37, 515],
        [35, 49, 1027],
        [70, 81, 515],
        [3842, 3, 2],
        [3, 3842, 2],
    ];
    small.chain(others)
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no guard pages, and needs none")]
fn accesses_stay_in_bounds_of_the_matrices() {
    fn all<T: Element>(isa: Isa, fences: &mut [Fence; 4]) {
        let random = &mut Random(5 + T::TYPE as u64);
        let [a, b, c, bias] = fences;
        [a, b].into_iter().for_each(|fence| fence.fill::<T>(random));
        [c, bias].into_iter().for_each(|fence| fence.fill::<T::Out>(random));
        for transposed in [0, 1, 2, 3, 4, 5, 6, 7].map(|bits| [0, 1, 2].map(|bit| bits >> bit & 1 == 1)) {
            for side in [Edge::Before, Edge::After] {
                for sizes in sizes().filter(|sizes| chosen(random, *sizes)) {
                    product::<T>(fences, Fenced { isa, ty: T::TYPE, sizes, transposed, side });
                }
            }
        }
    }
    // SAFETY: the handler accesses no state that a fault could have interrupted.
    unsafe { libc::signal(libc::SIGSEGV, on_fault as *const () as libc::sighandler_t) };
    let fences = &mut std::array::from_fn(|_| Fence::new(1 << 20));
    for isa in instruction_sets() {
        for_every_type!(all, isa, fences);
    }
}
