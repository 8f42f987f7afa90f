//! Products for kernels in CUDA C++: a folder with their sources, launches, initial memory, and the
//! expected final memory. The interpreter computes the latter; it is compared bit for bit,
//! including the gaps of C.
//!
//! `tests/cpp/driver.cu` compiles to a program for a GPU or, with `host/`, for any machine with a
//! C++ compiler.

use std::fmt::Write;
use std::path::Path;
use std::{fs, io};

use tegula::element::{Scalar, Type, with_operand_type};
use tegula::epilogue::{Activation, BiasShape, Epilogue};
use tegula::interpret;
use tegula::{Layout, View, ViewMut};
use tegula_interp::{Arg, Config, run};
use tegula_ir::launch::Field;
use tegula_ir::{Axis, check, cpp};
use tegula_kernels::{Barriers, Edges, Mapping, PRESETS, Plain, PlainKind};

use crate::product::{Product, Random, Sample};

/// Files of the folder other than kernels and data.
const FILES: [(&str, &str); 4] = [
    ("driver.cu", include_str!("../cpp/driver.cu")),
    ("host/host.h", include_str!("../cpp/host.h")),
    ("host/cuda_fp16.h", include_str!("../cpp/cuda_fp16.h")),
    ("host/cuda_bf16.h", include_str!("../cpp/cuda_bf16.h")),
];

/// A kernel variant, and the batches, m, n and k of its product.
pub struct Case {
    variant: Plain,
    sizes: [usize; 4],
    seed: u64,
}

/// Small cases, with a CPU thread per GPU thread: every type, family and mapping, any strides,
/// ragged shapes, edges, barriers, epilogues. Every tile, or the tiles in turn.
pub fn small(every_tile: bool) -> Vec<Case> {
    let mut random = Random(11);
    let mut cases = Vec::new();
    let mut add = |variant: Plain, sizes: [usize; 4]| cases.push(Case { variant, sizes, seed: cases.len() as u64 });
    let mut turn = 0;
    for ty in Type::OPERANDS {
        for family in [PlainKind::Naive, PlainKind::Tiled] {
            for mapping in [Mapping::XCol, Mapping::XRow] {
                turn = (turn + 1) % 3;
                let tiles = [2, 4, if ty.size() >= 4 { 8 } else { 3 }];
                for &tile in if every_tile { &tiles[..] } else { &tiles[turn..=turn] } {
                    let sizes = [1 + random.below(2), 1 + random.below(9), 1 + random.below(9), random.below(11)];
                    add(Plain { mapping, ..Plain::new(family, ty, tile) }, sizes);
                }
            }
        }
    }
    for ty in [Type::F32, Type::I32] {
        for family in [PlainKind::Naive, PlainKind::Tiled] {
            for edges in [Edges::Floor, Edges::Unguarded] {
                add(Plain { edges, ..Plain::new(family, ty, 4) }, [2, 8, 4, 12]);
            }
        }
        add(Plain { barriers: Barriers::Extra, ..Plain::new(PlainKind::Tiled, ty, 2) }, [1, 5, 3, 7]);
        // One step along k overwrites no tile, so the barrier may be missing.
        add(Plain { barriers: Barriers::NoSecond, ..Plain::new(PlainKind::Tiled, ty, 4) }, [1, 3, 4, 4]);
    }
    for (ty, bias, activation) in [
        (Type::F32, Some(BiasShape::Row), Activation::Relu),
        (Type::I32, Some(BiasShape::Column), Activation::None),
        (Type::F16, Some(BiasShape::Row), Activation::Gelu),
        (Type::F64, None, Activation::Silu),
        (Type::F32, None, Activation::Gelu),
    ] {
        let epilogue = Epilogue { bias, activation };
        add(Plain { epilogue, ..Plain::new(PlainKind::Tiled, ty, 4) }, [2, 7, 6, 9]);
        add(Plain { epilogue, ..Plain::new(PlainKind::Naive, ty, 2) }, [1, 5, 6, 4]);
    }
    cases
}

/// Cases for a GPU: the presets, and the small cases in larger sizes.
#[allow(dead_code, reason = "used by the task that writes a folder for a GPU")]
pub fn large() -> Vec<Case> {
    let presets = PRESETS.iter().enumerate().map(|(at, name)| {
        let variant = Plain::named(name).expect("a preset");
        let sizes = if variant.edges == Edges::Floor { [2, 64, 48, 80] } else { [2, 133, 95, 71] };
        Case { variant, sizes, seed: 100 + at as u64 }
    });
    let mut cases = small(true);
    cases.iter_mut().filter(|case| case.variant.edges == Edges::Guarded).for_each(|case| {
        if case.variant.barriers == Barriers::Both {
            case.variant.tile = [16, 8, 32][case.seed as usize % 3];
            let [batches, m, n, k] = case.sizes;
            case.sizes = [batches, 9 * m + 1, 9 * n + 1, 9 * k + 1];
        }
    });
    presets.chain(cases).collect()
}

/// Contents of the folder: initial and final memory, and the launches between.
#[derive(Default)]
struct Folder {
    texts: Vec<(String, cpp::Source)>,
    launches: String,
    before: Vec<u8>,
    after: Vec<u8>,
}

/// Writes the folder.
pub fn write(folder: &Path, cases: &[Case]) -> io::Result<()> {
    let mut folder_contents = Folder::default();
    for case in cases {
        with_operand_type!(case.variant.ty, T => folder_contents.add::<T>(case), ty => panic!("no kernels of {ty}"));
    }
    fs::create_dir_all(folder.join("host"))?;
    fs::create_dir_all(folder.join("kernels"))?;
    FILES.iter().try_for_each(|(name, text)| fs::write(folder.join(name), text))?;
    let mut includes = String::new();
    for (name, source) in &folder_contents.texts {
        fs::write(folder.join("kernels").join(name).with_extension("cu"), &source.text)?;
        // Each kernel in a namespace, since several define helpers of the same name.
        let _ = writeln!(includes, "namespace of_{name} {{\n#include \"kernels/{name}.cu\"\n}}");
    }
    fs::write(folder.join("kernels.inc"), includes)?;
    fs::write(folder.join("launches.inc"), folder_contents.launches)?;
    fs::write(folder.join("before.bin"), folder_contents.before)?;
    fs::write(folder.join("after.bin"), folder_contents.after)
}

impl Folder {
    fn add<T: Sample>(&mut self, case: &Case) {
        let random = &mut Random(case.seed);
        let mut product = Product::<T>::random(case.sizes, random).with_epilogue(case.variant.epilogue, random);
        if let Some((_, layout)) = &mut product.bias
            && layout.shape.batches == 1
        {
            // A bias for the whole batch is passed with a stride of zero.
            (layout.shape.batches, layout.strides[0]) = (case.sizes[0], 0);
        }
        if product.beta == T::Acc::ZERO {
            // Fill C, which must not be read, with NaN.
            product.c.0.fill(T::Out::from_bits(u64::MAX));
        }
        let variant = product.legalize(case.variant);
        let kernel = check(variant.build().expect("the variant builds")).expect("the kernel is valid");
        let source = cpp::print(&kernel).expect("the kernel prints");

        let (c_view, bias) = (product.initial_c(), product.bias.as_ref());
        let bias =
            bias.map(|(bias, layout)| interpret::input(View::strided(bias, *layout).expect("fits")).expect("memory"));
        let (a, b) = (interpret::input(product.a()).expect("memory"), interpret::input(product.b()).expect("memory"));
        let c = interpret::in_out(c_view).expect("memory");
        let mut args = vec![Arg::from(&a), Arg::from(&b), Arg::from(&c)];
        args.extend(bias.as_ref().map(Arg::from));
        args.extend([Arg::scalar(product.alpha), Arg::scalar(product.beta)]);
        let outcome =
            run(&kernel, &args, &Config::default()).expect("the arguments fit").ok(&kernel).expect("no error");

        let mut c_after = product.c.0.clone();
        interpret::copy_written(&c, ViewMut::strided(&mut c_after, product.c.1).expect("fits"))
            .expect("the type matches");
        let begin = self.before.len();
        let mut offsets = vec![
            (self.append(&product.a.0, &product.a.0), product.a.1),
            (self.append(&product.b.0, &product.b.0), product.b.1),
            (self.append(&product.c.0, &c_after), product.c.1),
        ];
        if let Some((bias, layout)) = &product.bias {
            offsets.push((self.append(bias, bias), *layout));
        }
        let size = |param: usize| if param < 2 { T::TYPE.size() } else { <T::Out as Scalar>::TYPE.size() };
        let scalars = [product.alpha.to_bits(), product.beta.to_bits()];
        let arguments: Vec<String> = source
            .parameters
            .iter()
            .map(|field| match *field {
                Field::Address(p) => {
                    let (offset, layout): (usize, Layout) = offsets[p.index()];
                    format!("at({})", offset + layout.offset * size(p.index()))
                }
                Field::Extent(p, axis) => format!("{}u", extent(&offsets[p.index()].1, axis)),
                Field::Stride(p, axis) => format!("{}ll", offsets[p.index()].1.strides[axis_index(axis)]),
                Field::Tensor(_) => unreachable!("plain kernels have no tensor maps"),
                Field::Scalar(p, _) => format!("Bits{{{:#x}ull}}", scalars[p.index() - offsets.len()]),
            })
            .collect();
        let ([x, y, z], [tx, ty, tz]) = (outcome.grid, source.block);
        // Reduce the grid of some cases, so that blocks compute several tiles.
        let [y, z] = if case.seed.is_multiple_of(4) { [y.min(2), 1] } else { [y, z] };
        let (name, [batches, m, n, k]) = (variant.name(), case.sizes);
        let entry = format!("of_{name}::{}", source.entry);
        let _ = writeln!(
            self.launches,
            "begin(\"{name}, {batches} of {m}x{n}x{k}\", {begin}, {});\nLAUNCH({entry}, (dim3{{{x}, {y}, {z}}}), (dim3{{{tx}, {ty}, {tz}}}), {});\nend();",
            self.before.len(),
            arguments.join(", ")
        );
        if self.texts.iter().all(|(known, _)| *known != name) {
            self.texts.push((name, source));
        }
    }

    /// Appends the initial and final elements of a matrix. Returns their offset.
    fn append<S: Scalar>(&mut self, before: &[S], after: &[S]) -> usize {
        let offset = self.before.len().next_multiple_of(16);
        for (memory, values) in [(&mut self.before, before), (&mut self.after, after)] {
            memory.resize(offset, 0xa5);
            memory
                .extend(values.iter().flat_map(|value| value.to_bits().to_le_bytes().into_iter().take(S::TYPE.size())));
        }
        offset
    }
}

fn axis_index(axis: Axis) -> usize {
    match axis {
        Axis::Batches => 0,
        Axis::Rows => 1,
        Axis::Cols => 2,
    }
}

fn extent(layout: &Layout, axis: Axis) -> usize {
    [layout.shape.batches, layout.shape.rows, layout.shape.cols][axis_index(axis)]
}
