use super::*;
use crate::check;
use crate::prelude::*;

/// The image of a kernel with one block of 64 threads.
fn image(build: impl for<'k> FnOnce(&'k Builder)) -> Image {
    let kernel = kernel("test", Block::d1(64), |k| {
        k.grid([k.constant(1), k.constant(1), k.constant(1)]);
        build(k);
    });
    print(&check(kernel).expect("the kernel passes")).expect("the kernel prints")
}

fn text(build: impl for<'k> FnOnce(&'k Builder)) -> String {
    image(build).text
}

fn requirement(build: impl for<'k> FnOnce(&'k Builder)) -> (String, String) {
    let text = text(build);
    let line = |prefix: &str| text.lines().find_map(|l| l.strip_prefix(prefix)).unwrap_or_default().to_string();
    (line(".version "), line(".target "))
}

/// Stores the result of an operation on two elements of a type.
fn combine<T: Scalar>(k: &Builder, op: impl for<'k> Fn(Val<'k, T>, Val<'k, T>) -> Val<'k, T>) {
    let (x, y) = (k.input::<T>("x"), k.output::<T>("y"));
    y.store((0, 0), op(x.load((0, 0)), x.load((0, 1))));
}

#[test]
fn shared_memory_beyond_48_kib_is_dynamic() {
    let array = |len| image(move |k| k.shared::<u8>("tile", [len]).store((k.thread_x(),), 1));
    let (small, large) = (array(49_152), array(49_153));
    assert_eq!((small.shared_bytes, large.shared_bytes), (0, 49_153));
    assert!(small.text.contains("\t.shared .align 16 .b8 arena[49152];"));
    assert!(large.text.contains("\n.extern .shared .align 16 .b8 arena[];"));
}

#[test]
fn every_instruction_has_its_source_line() {
    let kernel = kernel("test", Block::d1(64), |k| {
        k.grid([k.constant(1), k.constant(1), k.constant(1)]);
        let (x, y) = (k.input::<f32>("x"), k.output::<f32>("y"));
        k.for_each(0, x.rows(), |i| {
            k.when(i.lt(x.cols()), || y.store((i, i), x.load((i, i)).mul_add(x.load((i, i)), x.load((i, i)))));
            k.barrier();
        });
    });
    let kernel = check(kernel).expect("the kernel passes");
    let (image, sites) = print_lines(&kernel).expect("the kernel prints");
    assert_eq!(image.text.lines().count(), sites.len());
    let line_of = |instruction: &str| {
        let at = image.text.lines().position(|line| line.contains(instruction)).expect("is printed");
        sites[at].map(|site| kernel.site(site).location.line())
    };
    let [product, barrier] = ["fma.rn.f32", "bar.sync"].map(|instruction| line_of(instruction).unwrap());
    assert_eq!((barrier, line_of("st.global")), (product + 1, Some(product)));
    assert_eq!([".target", "ld.param"].map(line_of), [None, None]);
}

#[test]
fn float_arithmetic_has_a_rounding_mode() {
    let text = text(|k| {
        combine::<f32>(k, |a, b| (a + b - a * b) / b);
    });
    for name in ["add.rn.f32", "sub.rn.f32", "mul.rn.f32", "div.rn.f32"] {
        assert!(text.contains(name), "{name} in {text}");
    }
    let bare = |line: &&str| ["add.f32", "sub.f32", "mul.f32", "fma.f32"].iter().any(|op| line.contains(op));
    assert_eq!(text.lines().find(bare), None);
}

#[test]
fn version_and_target_are_minimal() {
    let plain = ("6.4".to_string(), "sm_75".to_string());
    assert_eq!(requirement(|k| combine::<f16>(k, |a, b| a.mul_add(b, -a))), plain);
    assert_eq!(requirement(|k| combine::<bf16>(k, |a, b| a.lt(b).select(-a, b.abs()))), plain);
    let sm_80 = ("7.0".to_string(), "sm_80".to_string());
    assert_eq!(requirement(|k| combine::<f16>(k, |a, b| a.min(b))), sm_80);
    assert_eq!(requirement(|k| combine::<bf16>(k, |a, b| (a.to::<f32>() * b.to::<f32>()).to())), sm_80);
    assert_eq!(requirement(|k| combine::<bf16>(k, |a, b| a + b)), ("7.8".into(), "sm_90".into()));
}

#[test]
fn parameter_names_are_unique() {
    let text = text(|k| {
        k.output::<f32>("a").store((0, 0), k.scalar::<f32>("a_ptr") + k.scalar::<f32>("b c") + k.scalar::<f32>("b-c"));
    });
    for name in [".u64 a_ptr,", ".f32 a_ptr_,", ".f32 b_c,", ".f32 b_c_\n"] {
        assert_eq!(text.matches(name).count(), 1, "{name} in {text}");
    }
}

#[test]
fn warp_uniform_branch_is_bra_uni() {
    let body = |k: &Builder| k.output::<u32>("y").store((0, 0), 1);
    assert!(text(|k| k.when(k.block_x().lt(3), || body(k))).contains("bra.uni"));
    assert!(!text(|k| k.when(k.thread_x().lt(3), || body(k))).contains("bra.uni"));
}

#[test]
fn loop_invariant_addresses_are_hoisted() {
    let text = text(|k| {
        let (x, y) = (k.input::<f32>("x"), k.matrix::<f32>("y", Access::Write, Order2d::RowMajor, 1));
        let row = k.thread_x();
        k.for_each(0, x.cols(), |col| y.store((row, col), x.load((row, col))));
    });
    let (before, within) = text.split_once("$L1:").expect("a loop");
    assert_eq!(before.matches("mad.lo.s64").count(), 2, "rows: {text}");
    assert_eq!(within.matches("mad").count(), 2, "columns: {text}");
}

#[test]
fn constant_shared_offset_is_an_immediate() {
    let text = text(|k| {
        let (tile, y) = (k.shared::<f32>("tile", [64, 4]), k.output::<f32>("y"));
        let i = k.thread_x();
        tile.store((i, 0), 1.0);
        tile.store((i, 3), 1.0);
        y.store((0, 0), tile.load((2, 1)));
    });
    assert_eq!(text.matches("mad.lo.u32").count(), 1, "{text}");
    assert!(text.contains("+12], 0f3F800000") && text.contains("[arena+36]"), "{text}");
}

#[test]
fn input_of_a_dependent_launch_skips_the_read_only_path() {
    let read = |k: &Builder| k.output::<f32>("y").store((0, 0), k.input::<f32>("x").load((0, 0)));
    assert!(text(read).contains("ld.global.nc"));
    let early = text(|k| {
        k.griddep_wait();
        read(k);
    });
    assert!(early.contains("griddepcontrol.wait") && !early.contains(".nc"), "{early}");
}
