//! Matrices that end, or begin, where memory does: what reads or writes an element too many is killed.
//!
//! A load by a mask does not touch what is masked off, so those of vectors at an edge pass, as they should.

use std::io::Write;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::*;

/// The first byte after a fenced piece, or the byte before it, is out of bounds.
#[derive(Clone, Copy, Debug)]
enum Side {
    Before,
    After,
}

/// Pages of memory between two that may not be touched.
struct Fence {
    map: *mut libc::c_void,
    page: usize,
    bytes: usize,
}

impl Fence {
    fn new(at_least: usize) -> Self {
        // SAFETY: the map is new, and is made usable but for its first and last page.
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

    /// So many elements beside one of the fences.
    fn piece<S: Scalar + bytemuck::Pod>(&mut self, len: usize, side: Side) -> &mut [S] {
        // SAFETY: these pages are there, are written by us alone, and the system filled them with zeros.
        let all = unsafe { std::slice::from_raw_parts_mut(self.map.byte_add(self.page).cast::<u8>(), self.bytes) };
        let all = bytemuck::cast_slice_mut(all);
        match side {
            Side::Before => &mut all[..len],
            Side::After => all.split_at_mut(all.len() - len).1,
        }
    }

    fn fill<S: Scalar + bytemuck::Pod>(&mut self, random: &mut Random) {
        let len = self.bytes / size_of::<S>();
        self.piece(len, Side::Before).iter_mut().for_each(|value| *value = random.scalar::<S>());
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        // SAFETY: nobody has a piece of it any more.
        unsafe { libc::munmap(self.map, self.bytes + 2 * self.page) };
    }
}

/// A product between fences.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "they are printed")]
struct Fenced {
    isa: Isa,
    ty: Type,
    sizes: [usize; 3],
    transposed: [bool; 3],
    side: Side,
}

/// The one being made.
static NOW: AtomicPtr<Fenced> = AtomicPtr::new(null_mut());

/// Says which product it was, and lets the fault kill the program.
extern "C" fn on_fault(signal: libc::c_int) {
    // SAFETY: null, or what `product` points at while it runs; and the call is one that handlers may make.
    unsafe {
        if let Some(now) = NOW.load(Ordering::Acquire).as_ref() {
            _ = writeln!(std::io::stderr(), "out of bounds: {now:?}");
        }
        libc::signal(signal, libc::SIG_DFL);
    }
}

/// Makes a product of fenced matrices, with a bias that is fenced too for some sizes, and with C read for some.
fn product<T: Element>(fences: &mut [Fence; 4], fenced: Fenced) {
    let Fenced { isa, sizes: [m, n, k], transposed, side, .. } = fenced;
    let shapes = [(m, k), (k, n), (m, n)].map(|(rows, cols)| Shape::new(rows, cols));
    let [a, b, c] = std::array::from_fn(|i| Style { transposed: transposed[i], ..Style::default() }.layout(shapes[i]));
    let [of_a, of_b, of_c, of_bias] = fences;
    let (a, b) = (View::strided(of_a.piece::<T>(a.1, side), a.0), View::strided(of_b.piece::<T>(b.1, side), b.0));
    let c = ViewMut::strided(of_c.piece::<T::Out>(c.1, side), c.0).unwrap();
    let bias = match (m + n + k) % 3 {
        0 => None,
        1 => Some(View::new(of_bias.piece(n, side), 1, n).unwrap()),
        _ => Some(View::new(of_bias.piece(m, side), m, 1).unwrap()),
    };
    let beta = if k % 2 == 0 { T::Acc::ZERO } else { T::Acc::ONE };
    let finish = Finish { bias, activation: Activation::None };
    NOW.store((&raw const fenced).cast_mut(), Ordering::Release);
    gemm_told::<T>(isa, T::Acc::ONE, a.unwrap(), b.unwrap(), beta, c, finish, None, None).unwrap();
    NOW.store(null_mut(), Ordering::Release);
}

/// All small sizes around vectors and tiles, and some of each of the other ways.
fn sizes() -> impl Iterator<Item = [usize; 3]> + Clone {
    let high = (1..=13).chain(31..=34).chain([49]);
    let wide = (1..=17).chain(23..=25).chain(31..=33).chain(47..=50).chain(63..=65);
    let deep = [1, 2, 3, 4, 5, 8, 17, 33];
    let small = high.flat_map(move |m| wide.clone().flat_map(move |n| deep.into_iter().map(move |k| [m, n, k])));
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
        [3842, 3, 2],
        [3, 3842, 2],
    ];
    small.chain(others)
}

#[test]
#[cfg_attr(miri, ignore = "knows no guard pages, and needs none")]
fn nothing_is_touched_beside_the_matrices() {
    fn all<T: Element>(isa: Isa, fences: &mut [Fence; 4]) {
        let random = &mut Random(5);
        let [a, b, c, bias] = fences;
        [a, b].into_iter().for_each(|fence| fence.fill::<T>(random));
        [c, bias].into_iter().for_each(|fence| fence.fill::<T::Out>(random));
        for transposed in [0, 1, 2, 3, 4, 5, 6, 7].map(|bits| [0, 1, 2].map(|bit| bits >> bit & 1 == 1)) {
            for side in [Side::Before, Side::After] {
                for sizes in sizes() {
                    product::<T>(fences, Fenced { isa, ty: T::TYPE, sizes, transposed, side });
                }
            }
        }
    }
    // SAFETY: the handler touches nothing that a fault could have interrupted in the middle.
    unsafe { libc::signal(libc::SIGSEGV, on_fault as *const () as libc::sighandler_t) };
    let fences = &mut std::array::from_fn(|_| Fence::new(1 << 20));
    for isa in instruction_sets() {
        for_every_type!(all, isa, fences);
    }
}
