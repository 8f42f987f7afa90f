//! Kernels with golden text: the presets, and small kernels that together use every operation.

use tegula_ir::Integer;
use tegula_ir::prelude::*;
use tegula_kernels::{PRESETS, Plain};

/// The name of each golden file, and its kernel.
pub fn golden_kernels() -> Vec<(String, Kernel)> {
    let presets = PRESETS.iter().map(|name| {
        let kernel = Plain::named(name).and_then(|v| v.build()).expect("presets build");
        (name.to_ascii_lowercase(), kernel)
    });
    presets.chain(small().into_iter().map(|kernel| (kernel.name().to_string(), kernel))).collect()
}

/// Kernels with golden CUDA C++: naive, and tiled with x as the row and as the column.
pub const GOLDEN_CUDA: [&str; 3] = ["k1", "k3", "k6"];

/// The small kernels.
pub fn small() -> Vec<Kernel> {
    let plain = [
        integers::<i32>("integers_i32", -7),
        integers::<u32>("integers_u32", 7),
        integers::<i64>("integers_i64", -7),
        integers::<u64>("integers_u64", 7),
        floats::<f32>("floats_f32"),
        floats::<f64>("floats_f64"),
        floats::<f16>("floats_f16"),
        floats::<bf16>("floats_bf16"),
        bitcasts(),
        predicates(),
        control(),
        moves(),
        widths(),
        packed(),
        ordered(),
        atomics(),
        asynchronous(),
        cursors(),
        warps(),
        barriers(),
        large_arena(),
        strided(),
        bare(),
    ];
    plain.into_iter().chain(conversions()).chain(Mma::ALL.map(matrix)).chain([matrix_loads()]).collect()
}

/// A kernel with one block of 32 threads. Each result has its own column, in the thread's row.
fn lanes(name: &str, build: impl for<'k> FnOnce(&'k Builder, Val<'k, u32>)) -> Kernel {
    kernel(name, Block::d1(32), |k| {
        k.grid([k.constant(1), k.constant(1), k.constant(1)]);
        build(k, k.thread_x());
    })
}

/// Stores values in consecutive columns.
fn store_row<'k, T: Scalar>(to: Global<'k, T>, row: Val<'k, u32>, values: &[Val<'k, T>]) {
    for (col, &value) in values.iter().enumerate() {
        to.store((row, col as u32), value);
    }
}

/// Stores predicates as 0 or 1.
fn store_predicates<'k>(to: Global<'k, u32>, row: Val<'k, u32>, values: &[Pred<'k>]) {
    let numbers: Vec<_> = values.iter().map(|p| p.select(1u32, 0u32)).collect();
    store_row(to, row, &numbers);
}

fn compared<'k, T: Arith>(a: Val<'k, T>, b: Val<'k, T>) -> [Pred<'k>; 6] {
    [a.eq(b), a.ne(b), a.lt(b), a.le(b), a.gt(b), a.ge(b)]
}

fn integers<T: Integer + tegula_ir::Bits>(name: &str, constant: T) -> Kernel {
    lanes(name, |k, row| {
        let (x, y, truth) = (k.input::<T>("x"), k.output::<T>("y"), k.output::<u32>("truth"));
        let (a, b) = (x.load((row, 0)), x.load((row, 1)));
        store_row(
            y,
            row,
            &[a + b, a - b, a * b, a / b, a % b, a.min(b), a.max(b), a & b, a | b, a ^ b, a << b, a >> b],
        );
        store_row(y, row + 32, &[a + constant, a / constant, a >> T::ONE, -a, !a, a.abs(), a.mul_add(b, constant)]);
        store_row(y, row + 64, &[a.lt(b).select(a, b), a.eq(constant).select(constant, b), k.scalar::<T>("s")]);
        store_predicates(truth, row, &compared(a, b));
    })
}

fn floats<T: tegula_ir::Float>(name: &str) -> Kernel {
    lanes(name, |k, row| {
        let (x, y, truth) = (k.input::<T>("x"), k.output::<T>("y"), k.output::<u32>("truth"));
        let (a, b) = (x.load((row, 0)), x.load((row, 1)));
        store_row(y, row, &[a + b, a - b, a * b, a / b, a.min(b), a.max(b), -a, a.abs(), a.mul_add(b, a)]);
        store_row(y, row + 32, &[a + T::ONE, a * T::ONE, a.mul_add(T::ONE, T::ONE), a.gt(b).select(a, T::ZERO)]);
        store_row(y, row + 64, &[k.constant(T::ONE) / a, k.constant(T::ONE) + T::ONE, k.scalar::<T>("s")]);
        store_predicates(truth, row, &compared(a, b));
        store_predicates(truth, row + 32, &[a.eq(T::ONE)]);
    })
}

/// Converts one number of type `T` to every type.
fn convert_from<'k, T: Scalar>(k: &'k Builder, row: Val<'k, u32>, name: &str) {
    let x = k.input::<T>(name).load((row, 0));
    let to = |ty: &str| format!("{ty}_from_{name}");
    k.output::<f64>(&to("f64")).store((row, 0), x.to::<f64>());
    k.output::<f32>(&to("f32")).store((row, 0), x.to::<f32>());
    k.output::<f16>(&to("f16")).store((row, 0), x.to::<f16>());
    k.output::<bf16>(&to("bf16")).store((row, 0), x.to::<bf16>());
    k.output::<i8>(&to("i8")).store((row, 0), x.to::<i8>());
    k.output::<u8>(&to("u8")).store((row, 0), x.to::<u8>());
    k.output::<i32>(&to("i32")).store((row, 0), x.to::<i32>());
    k.output::<u32>(&to("u32")).store((row, 0), x.to::<u32>());
    k.output::<i64>(&to("i64")).store((row, 0), x.to::<i64>());
    k.output::<u64>(&to("u64")).store((row, 0), x.to::<u64>());
}

/// Conversions of every type to every other.
fn conversions() -> [Kernel; 4] {
    [
        lanes("convert_floats", |k, row| {
            convert_from::<f64>(k, row, "f64");
            convert_from::<f32>(k, row, "f32");
        }),
        lanes("convert_halves", |k, row| {
            convert_from::<f16>(k, row, "f16");
            convert_from::<bf16>(k, row, "bf16");
        }),
        lanes("convert_short", |k, row| {
            convert_from::<i8>(k, row, "i8");
            convert_from::<u8>(k, row, "u8");
            k.output::<f32>("constant").store((row, 0), k.constant(3i32).to::<f32>());
        }),
        lanes("convert_long", |k, row| {
            convert_from::<i32>(k, row, "i32");
            convert_from::<u32>(k, row, "u32");
            convert_from::<i64>(k, row, "i64");
            convert_from::<u64>(k, row, "u64");
        }),
    ]
}

fn bitcasts() -> Kernel {
    lanes("bitcasts", |k, row| {
        let (f, d) = (k.input::<f32>("f").load((row, 0)), k.input::<f64>("d").load((row, 0)));
        let (h, s) = (k.input::<f16>("h").load((row, 0)), k.input::<i8>("s").load((row, 0)));
        k.output::<u32>("word").store((row, 0), f.bitcast::<u32>());
        k.output::<i64>("long").store((row, 0), d.bitcast::<i64>());
        k.output::<bf16>("half").store((row, 0), h.bitcast::<bf16>());
        let byte = k.output::<u8>("byte");
        byte.store((row, 0), s.bitcast::<u8>());
        byte.store((row, 1), s.bitcast::<u8>().bitcast::<i8>().bitcast::<u8>());
        k.output::<f32>("float").store((row, 0), k.constant(0x3f80_0000u32).bitcast::<f32>());
    })
}

fn predicates() -> Kernel {
    lanes("predicates", |k, row| {
        let (x, y) = (k.input::<i32>("x"), k.output::<u32>("y"));
        let (a, b) = (x.load((row, 0)).gt(0), x.load((row, 1)).gt(0));
        let (flag, set) = (k.scalar::<bool>("flag"), k.var(true));
        set.set(a ^ b);
        store_predicates(y, row, &[a & b, a | b, a ^ b, !a, a.select(b, flag), a.select(b, true), set.get()]);
    })
}

/// Counted loops, branches, and while loops.
fn control() -> Kernel {
    lanes("control", |k, row| {
        let (x, y) = (k.input::<u32>("x"), k.output::<u32>("y"));
        let sum = k.var(0u32);
        k.for_each(0, x.cols(), |col| sum.set(sum.get() + x.load((row, col))));
        k.for_step(row, x.cols(), 32, |col| {
            k.for_step(col, x.rows(), x.cols(), |other| sum.set(sum.get() ^ x.load((other, col))));
        });
        k.if_else(sum.get().gt(100), || sum.set(0), || sum.set(sum.get() + 1));
        k.when(x.rows().gt(5), || y.store((row, 1), row));
        k.while_loop(
            || sum.get().lt(x.load((sum.get(), 1))),
            || {
                sum.set(sum.get() * 2);
                k.when(sum.get().gt(7), || sum.set(sum.get() + x.load((row, sum.get()))));
            },
        );
        y.store((row, 0), sum.get());
    })
}

/// Moves one element of type `T` through global memory, a variable and shared memory, with and
/// without a guard.
fn round_trip<'k, T: Scalar>(k: &'k Builder, row: Val<'k, u32>, name: &str) {
    let (x, y) = (k.input::<T>(&format!("{name}_x")), k.output::<T>(&format!("{name}_y")));
    let tile = k.shared::<T>(name, [2, 32]);
    let inside = row.lt(x.rows());
    let value = k.var(x.load_or((row, 1), inside, T::ONE));
    tile.store((1, row), value.get());
    tile.store_if((0, row), T::ONE, inside);
    k.sync_warp(FULL_WARP);
    let other = tile.load((0, row ^ 1));
    value.set(inside.select(other, tile.load((1, 3))));
    y.store_if((row, 0), value.get(), inside);
    y.store((row, 1), y.load((row, 0)));
}

/// Moves of every type that memory holds.
fn moves() -> Kernel {
    lanes("moves", |k, row| {
        round_trip::<f64>(k, row, "f64");
        round_trip::<f32>(k, row, "f32");
        round_trip::<f16>(k, row, "f16");
        round_trip::<bf16>(k, row, "bf16");
        round_trip::<i8>(k, row, "i8");
        round_trip::<u8>(k, row, "u8");
        round_trip::<i32>(k, row, "i32");
        round_trip::<u32>(k, row, "u32");
        round_trip::<i64>(k, row, "i64");
        round_trip::<u64>(k, row, "u64");
    })
}

/// Moves vectors of `WIDTH` elements, whole and partial, through both memories.
fn move_vectors<'k, T: Scalar, const WIDTH: usize>(k: &'k Builder, row: Val<'k, u32>, name: &str) {
    let width = WIDTH as u32;
    let x = k.matrix::<T>(&format!("{name}_x"), Access::Read, Order2d::RowMajor, width);
    let y = k.matrix::<T>(&format!("{name}_y"), Access::Write, Order2d::RowMajor, width);
    let tile = k.shared::<T>(name, [32, 2 * width]);
    let valid = x.cols() - width;
    tile.store_vec((row, 0), x.load_vec::<WIDTH>((row, 0)));
    tile.store_vec_first((row, width), x.load_vec_or::<WIDTH>((row, width), valid, T::ONE), valid);
    let last = tile.load_vec_or::<WIDTH>((row, width), valid, T::ZERO);
    y.store_vec((row, 0), tile.load_vec::<WIDTH>((row, 0)));
    y.store_vec_first((row, width), last, valid);
}

fn widths() -> Kernel {
    lanes("widths", |k, row| {
        move_vectors::<f64, 2>(k, row, "f64x2");
        move_vectors::<f32, 4>(k, row, "f32x4");
        move_vectors::<f16, 4>(k, row, "f16x4");
        move_vectors::<bf16, 2>(k, row, "bf16x2");
        move_vectors::<i8, 4>(k, row, "i8x4");
        move_vectors::<u8, 2>(k, row, "u8x2");
        move_vectors::<i32, 1>(k, row, "i32x1");
    })
}

/// Loads vectors with more elements than an instruction has registers: whole, guarded, and partial.
fn load_wide_vectors<'k, T: Scalar, const WIDTH: usize>(k: &'k Builder, row: Val<'k, u32>, name: &str) {
    let x = k.matrix::<T>(&format!("{name}_x"), Access::Read, Order2d::RowMajor, WIDTH as u32);
    let loads = [
        x.load_vec::<WIDTH>((row, 0)),
        x.load_vec_if::<WIDTH>((row, 0), row.lt(20), T::ONE),
        x.load_vec_or::<WIDTH>((row, 0), row, T::ZERO),
    ];
    for (name, values) in ["whole", "where", "first"].map(|guard| format!("{name}_{guard}")).iter().zip(loads) {
        let y = k.output::<T>(name);
        (0..).zip(values).for_each(|(col, value)| y.store((row, col), value));
    }
}

/// Stores eight elements of 16 bits: whole, guarded, and partial.
fn store_wide_vectors<'k, T: Scalar>(k: &'k Builder, row: Val<'k, u32>, name: &str) {
    let x = k.matrix::<T>(&format!("{name}_from"), Access::Read, Order2d::RowMajor, 8);
    let to = |guard: &str| k.matrix::<T>(&format!("{name}_to_{guard}"), Access::Write, Order2d::RowMajor, 8);
    // Pairs of elements are loaded as words.
    let [low, high] = [0, 4].map(|col| x.load_vec_if::<4>((row, col), row.lt(24), T::ONE));
    let values = std::array::from_fn::<_, 8, _>(|i| if i < 4 { high[i] } else { low[i - 4] });
    to("whole").store_vec((row, 0), values);
    to("where").store_vec_if((row, 0), values, row.gt(5));
    to("first").store_vec_first((row, 0), values, row);
}

fn packed() -> Kernel {
    lanes("packed", |k, row| {
        store_wide_vectors::<f16>(k, row, "f16");
        store_wide_vectors::<bf16>(k, row, "bf16");
        load_wide_vectors::<f16, 8>(k, row, "f16x8");
        load_wide_vectors::<bf16, 8>(k, row, "bf16x8");
        load_wide_vectors::<i8, 16>(k, row, "i8x16");
        load_wide_vectors::<u8, 8>(k, row, "u8x8");
    })
}

/// Flags with memory orders and scopes.
fn ordered() -> Kernel {
    lanes("ordered", |k, row| {
        let flags = k.matrix::<u32>("flags", Access::ReadWrite, Order2d::Strided, 1);
        let wide = k.matrix::<i64>("wide", Access::ReadWrite, Order2d::Strided, 1);
        let local = k.shared::<i32>("local", [32]);
        local.store_ordered((row,), 1, MemoryOrder::Release, Scope::Block);
        local.wait_until((row ^ 1,), Compare::Eq, 1, Scope::Block);
        let here = local.load_ordered((row,), MemoryOrder::Relaxed, Scope::Block);
        flags.store_ordered((row, 0), here.to::<u32>(), MemoryOrder::Relaxed, Scope::Device);
        k.fence(Scope::Block);
        k.fence(Scope::Device);
        k.fence(Scope::System);
        flags.store_ordered((row, 1), 1, MemoryOrder::Release, Scope::System);
        flags.wait_until((row, 1), Compare::Ge, row, Scope::System);
        wide.wait_until((row, 1), Compare::Ne, 0, Scope::Device);
        let seen = flags.load_ordered((row, 1), MemoryOrder::Acquire, Scope::Device);
        k.when(seen.gt(3), || wide.store_ordered((row, 0), -1, MemoryOrder::Relaxed, Scope::Block));
    })
}

/// All atomic operations of an integer type.
fn integer_atomics<'k, T: Integer>(memory: impl Elements<'k, T>, at: impl Coord<'k> + Copy, value: Val<'k, T>) {
    let (order, scope) = (MemoryOrder::Relaxed, Scope::Block);
    let old = memory.atomic(AtomicOp::Swap, at, value, MemoryOrder::Acquire, Scope::Device);
    memory.atomic(AtomicOp::Min, at, old, order, scope);
    memory.atomic(AtomicOp::Max, at, value, MemoryOrder::Release, Scope::Device);
    memory.atomic(AtomicOp::And, at, value, MemoryOrder::AcqRel, Scope::System);
    memory.atomic(AtomicOp::Or, at, value, order, scope);
    memory.atomic(AtomicOp::Xor, at, value, order, scope);
    memory.atomic(AtomicOp::CompareExchange { expected: old.id() }, at, T::ONE, order, scope);
}

fn atomics() -> Kernel {
    lanes("atomics", |k, row| {
        let u = k.matrix::<u32>("u", Access::ReadWrite, Order2d::Strided, 1);
        let i = k.matrix::<i32>("i", Access::ReadWrite, Order2d::Strided, 1);
        let l = k.matrix::<i64>("l", Access::ReadWrite, Order2d::Strided, 1);
        let f = k.matrix::<f32>("f", Access::ReadWrite, Order2d::Strided, 1);
        let d = k.matrix::<f64>("d", Access::ReadWrite, Order2d::Strided, 1);
        let tile = k.shared::<u64>("tile", [32]);
        integer_atomics(u, (row, 0), row);
        integer_atomics(i, (row, 0), k.constant(-3));
        integer_atomics(l, (row, 0), k.constant(-3));
        tile.store((row,), 0);
        integer_atomics(tile, (row,), row.to::<u64>());
        let (order, scope) = (MemoryOrder::Relaxed, Scope::Device);
        let before = u.atomic(AtomicOp::Add, (0, 0), 1, MemoryOrder::AcqRel, scope);
        i.atomic(AtomicOp::Add, (0, 0), before.to::<i32>(), order, scope);
        tile.atomic(AtomicOp::Add, (0,), 1, order, Scope::Block);
        f.atomic(AtomicOp::Add, (0, 0), 1.5, order, scope);
        d.atomic(AtomicOp::Add, (0, 0), 1.5, order, scope);
        f.atomic(AtomicOp::Swap, (0, 1), 2.5, order, scope);
        d.atomic(AtomicOp::Swap, (0, 1), 2.5, order, scope);
    })
}

/// Asynchronous copies of 4, 8 and 16 bytes.
fn asynchronous() -> Kernel {
    lanes("asynchronous", |k, row| {
        let x = k.matrix::<f32>("x", Access::Read, Order2d::RowMajor, 4);
        let y = k.output::<f32>("y");
        let h = k.matrix::<f16>("h", Access::Read, Order2d::RowMajor, 8);
        let (tile, halves) = (k.shared::<f32>("tile", [32, 8]), k.shared::<f16>("halves", [32, 8]));
        tile.copy_async((row, 0), x, (row, 0), 1, Guard::If(row.lt(x.rows()).id()));
        tile.copy_async((row, 2), x, (row, 2), 2, Guard::Always);
        k.copy_async_commit();
        tile.copy_async((row, 4), x, (row, 4), 4, Guard::First((x.cols() - 4).id()));
        halves.copy_async((row, 0), h, (row, 0), 8, Guard::If(row.lt(h.rows()).id()));
        k.copy_async_commit();
        k.copy_async_wait(1);
        y.store((row, 0), tile.load((row, 0)) + tile.load((row, 3)));
        k.copy_async_wait(0);
        y.store((row, 1), tile.load((row, 7)) + halves.load((row, 5)).to::<f32>());
    })
}

/// Cursors advanced by constants and by values, with known and unknown strides, for loads, copies
/// and stores.
fn cursors() -> Kernel {
    lanes("cursors", |k, row| {
        let x = k.matrix::<f32>("x", Access::Read, Order2d::Strided, 1);
        let w = k.matrix::<f32>("w", Access::Read, Order2d::RowMajor, 4);
        let y = k.matrix::<f32>("y", Access::ReadWrite, Order2d::RowMajor, 1);
        let (tile, sum) = (k.shared::<f32>("tile", [32, 4]), k.var(0.0f32));
        let (from_x, from_w, to_y) = (x.cursor((row, 1)), w.cursor((row * 2, 0)), y.cursor((row, 0)));
        k.for_each(0, 3, |step| {
            tile.copy_async((row, 0), from_w, (1, 4), 4, Guard::Always);
            k.copy_async_commit();
            sum.set(sum.get() + from_x.load((0, 0)) * from_x.load((3, 2)));
            from_x.advance(step, 1);
            from_w.advance(16, 0);
            k.copy_async_wait(0);
            to_y.store((2, 1), sum.get() + to_y.load((2, 1)) + tile.load((row, 3)));
            to_y.advance(32, step);
        });
    })
}

/// Shuffles and votes.
fn warps() -> Kernel {
    lanes("warps", |k, row| {
        let (x, y, f) = (k.input::<u32>("x"), k.output::<u32>("y"), k.output::<f32>("f"));
        let value = x.load((row, 0));
        let modes = [Shuffle::Index, Shuffle::Up, Shuffle::Down, Shuffle::Xor];
        store_row(y, row, &modes.map(|mode| k.shuffle(mode, value, 3, FULL_WARP)));
        store_row(y, row + 32, &modes.map(|mode| k.shuffle(mode, value, value, FULL_WARP)));
        f.store((row, 0), k.shuffle(Shuffle::Down, value.to::<f32>(), 16, FULL_WARP));
        store_row(y, row + 64, &[k.lane(), k.warp(), k.ballot(value.gt(1), FULL_WARP)]);
        store_predicates(y, row + 96, &[k.all(value.gt(1), FULL_WARP), k.any(value.gt(1), FULL_WARP)]);
        k.when(k.lane().lt(16), || k.sync_warp(0xffff));
    })
}

/// A three-dimensional block with full and named barriers.
fn barriers() -> Kernel {
    kernel("barriers", Block::d3(32, 2, 2), |k| {
        let y = k.matrix::<u32>("y", Access::Write, Order2d::ColMajor, 1);
        k.min_blocks(2);
        k.note("a note of\ntwo lines, the second with a Greek \u{3b1}");
        let tiles = y.rows().div_ceil(32);
        k.grid([tiles.min(y.cols() * 3), k.constant(2), k.constant(2)]);
        k.barrier();
        k.if_else(k.thread_z().eq(0), || k.named_barrier(1, 64), || k.named_barrier_arrive(2, 64));
        let block = k.block_x() + k.grid_x() * (k.block_y() + k.grid_y() * (k.block_z() + k.grid_z()));
        y.store((k.thread_x() + k.thread_y(), block), k.warp());
    })
}

/// More shared memory than may be static.
fn large_arena() -> Kernel {
    lanes("large_arena", |k, row| {
        let y = k.output::<f32>("y");
        let (first, second) = (k.shared::<f32>("first", [128, 32]), k.shared::<f32>("second", [8, 32, 36]));
        first.store((127, row), 1.0);
        second.store((7, row, row), 2.0);
        y.store((row, 0), first.load((127, row)) + second.load((7, row, row)));
    })
}

/// Batches, constant coordinates, and strides of every kind.
fn strided() -> Kernel {
    lanes("strided", |k, row| {
        let x = k.matrix::<f64>("x", Access::Read, Order2d::Strided, 1);
        let y = k.matrix::<f64>("y", Access::ReadWrite, Order2d::RowMajor, 1);
        let z = k.matrix::<f64>("z", Access::Write, Order2d::ColMajor, 1);
        k.for_each(0, x.batches(), |batch| {
            k.for_each(0, x.cols(), |col| {
                y.store((batch, row, col), x.load((batch, row, col)) + y.load((batch, 3, col + 1)));
                z.batch(batch).store((row, col), x.load((row, 2)));
                z.store((5, 7), 0.0);
            });
        });
    })
}

/// A kernel without parameters, whose name is no PTX identifier.
fn bare() -> Kernel {
    lanes("2_bare", |k, row| {
        let tile = k.shared::<f32>("tile", [32]);
        tile.store((row,), 1.0);
    })
}

/// One `mma` per warp on given registers: row 32·i + lane of each matrix holds the registers of the
/// lane.
pub fn matrix(mma: Mma) -> Kernel {
    fn build<T: Scalar, S: Scalar>(mma: Mma) -> Kernel {
        let name = format!("{mma}").replace(' ', "_").replace('×', "x");
        kernel(&name, Block::d1(32), |k| {
            let (a, b) = (k.input::<T>("a"), k.input::<T>("b"));
            let accumulators = k.matrix::<S>("sums", Access::ReadWrite, Order2d::Strided, 1);
            k.grid([accumulators.rows() / 32, k.constant(1), k.constant(1)]);
            let row = k.block_x() * 32 + k.lane();
            let [a_registers, b_registers, accumulator_registers] = mma.registers();
            let acc = k.array::<S>(accumulator_registers);
            (0..accumulator_registers).for_each(|i| acc.at(i).set(accumulators.load((row, i))));
            let a: Vec<_> = (0..a_registers).map(|i| a.load((row, i))).collect();
            let b: Vec<_> = (0..b_registers).map(|i| b.load((row, i))).collect();
            k.mma(mma, &a, &b, acc);
            (0..accumulator_registers).for_each(|i| accumulators.store((row, i), acc.at(i).get()));
        })
    }
    match mma.accumulator_type() {
        Type::F64 => build::<f64, f64>(mma),
        Type::F32 => build::<u32, f32>(mma),
        _ => build::<u32, i32>(mma),
    }
}

/// Matrix loads from arrays of every element size, and rounding to tf32.
fn matrix_loads() -> Kernel {
    lanes("matrix_loads", |k, row| {
        let y = k.output::<u32>("y");
        matrices::<f64>(k, row, "f64", y, 0);
        matrices::<f32>(k, row, "f32", y, 32);
        matrices::<bf16>(k, row, "bf16", y, 64);
        matrices::<i8>(k, row, "i8", y, 96);
        let x = k.input::<f32>("x").load((row, 0));
        k.output::<u32>("rounded").store((row, 0), x.to_tf32());
    })
}

/// Loads one, two and four matrices, plain and transposed. The row stride is two 16-byte units.
fn matrices<'k, T: Scalar>(k: &'k Builder, row: Val<'k, u32>, name: &str, y: Global<'k, u32>, first: u32) {
    let (x, unit) = (k.input::<T>(&format!("{name}_x")), 16 / T::TYPE.size() as u32);
    let tile = k.shared::<T>(name, [32, 2 * unit]);
    for i in 0..2 * unit {
        tile.store((row, i), x.load((row, i % 16)));
    }
    k.sync_warp(FULL_WARP);
    let [one] = tile.load_matrix::<1>((row, 0), false);
    let [transposed] = tile.load_matrix::<1>((row, unit), true);
    let two = tile.load_matrix::<2>((row ^ 3, unit), false);
    let four = [tile.load_matrix::<4>((row, 0), false), tile.load_matrix::<4>((row ^ 1, unit), true)].concat();
    store_row(y, row + first, &[&[one, transposed], &two[..], &four[..]].concat());
}
