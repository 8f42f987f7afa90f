//! Machine code of three kernels, disassembled by nvdisasm: the instructions that determine their
//! speed.

use std::process::Command;

use tegula::element::Type;
use tegula_kernels::{Blocked, Hopper, Plain, Variant};

use super::ptxas::{Job, assemble, file, output, target, tool};
use super::{MEASURED, print};

/// The disassembly of a PTX text for a GPU, or `None` if a tool is not found.
fn listing(name: &str, text: String, target: String) -> Option<String> {
    let (ptxas, nvdisasm) = (tool("ptxas")?, tool("nvdisasm")?);
    let folder = tempfile::tempdir().expect("a folder");
    let job = Job { name: name.into(), text, target };
    assemble(&ptxas, folder.path(), &job).expect("it assembles");
    let mut command = Command::new(nvdisasm);
    command.arg("-c").arg(file(folder.path(), &job, "cubin"));
    let (success, listing) = output(&mut command, &file(folder.path(), &job, "sass")).expect("nvdisasm runs");
    assert!(success, "{listing}");
    Some(listing)
}

/// The inner loop loads four elements of shared memory at a time, and uses fused multiply-adds.
#[test]
fn tiled_kernel_reads_vectors_and_fuses() {
    let text = print(Variant::from(Plain::named("K6").expect("a preset")).build()).expect("it prints");
    let Some(listing) = listing("tiled", text, MEASURED.into()) else { return };
    let count = |what: &str| listing.matches(what).count();
    let counts = format!("{} FFMA, {} LDS.128, {} FADD", count("FFMA"), count("LDS.128"), count("FADD"));
    assert!(count("FFMA") >= 32 && count("LDS.128") >= 8 && count("FADD") == 0, "{counts}");
}

/// The f64 kernel uses the largest DMMA and 16-byte loads. Between DMMAs it moves no operand
/// between registers; addresses of copies may move.
#[test]
fn f64_tensor_core_kernel_moves_no_operand() {
    let named = Blocked::named("dmma16x16_128x128x16_warp32x64_thread16x16_stages4", Type::F64).expect("a valid name");
    let text = print(Blocked { aligned_16: [true; 3], ..named }.build()).expect("it prints");
    let Some(listing) = listing("f64", text, MEASURED.into()) else { return };
    // From the first product to the last.
    let bounds = listing.find("DMMA").zip(listing.rfind("DMMA"));
    let products = bounds.map_or("", |(first, last)| &listing[first..last + 4]);
    let count = |what: &str| products.matches(what).count();
    let (large, wide, moves) = (count("DMMA"), count("LDS.128"), fragment_moves(products));
    let narrow = count("LDS.") - wide;
    let counts = format!("{large} DMMA, {wide} LDS.128, {narrow} narrower, {moves} MOV to them");
    assert_eq!(large, listing.matches("DMMA.16x8x16").count(), "{counts}");
    assert!(large == 16 && wide <= 24 && narrow == 0 && moves == 0, "{counts}");
}

/// A pipeline uses `wgmma` of the full tile width, multicast TMA loads, TMA stores, and
/// `setmaxnreg`.
#[test]
fn pipeline_multiplies_copies_and_stores_whole_tiles() {
    let kernel =
        Hopper::named("hopper_128x256x64_consumers2_stages4_cluster2x1", Type::BF16).and_then(|hopper| hopper.build());
    let text = print(kernel).expect("it prints");
    let target = target(&text);
    let Some(listing) = listing("bf16", text, target) else { return };
    for (what, count) in [
        ("HGMMA.64x256x16", 4),
        ("UTMALDG.3D.MULTICAST", 2),
        ("UTMALDG.3D ", 1),
        ("UTMASTG.3D", 5),
        ("USETMAXREG", 2),
        ("STSM.16.M88.4", 20),
    ] {
        assert_eq!(listing.matches(what).count(), count, "{what}");
    }
}

/// Counts moves to a register that the next DMMA uses.
fn fragment_moves(listing: &str) -> usize {
    let lines: Vec<&str> = listing.lines().collect();
    let move_target =
        |line: &str| -> Option<u32> { line.split("MOV").nth(1)?.split_once(" R")?.1.split_once(',')?.0.parse().ok() };
    let to_product = |(i, register): (usize, u32)| {
        let next = lines[i + 1..].iter().find_map(|line| match operands(line) {
            Some(operands) => operands.iter().any(|all| all.contains(&register)).then_some(true),
            None => uses_register(line, register).then_some(false),
        });
        next == Some(true)
    };
    let moves = lines.iter().enumerate().filter_map(|(i, line)| Some((i, move_target(line)?)));
    moves.filter(|&one| to_product(one)).count()
}

/// The registers of a DMMA: destination, A, B, and accumulators.
fn operands(line: &str) -> Option<Vec<std::ops::Range<u32>>> {
    let (shape, operands) = line.split_once("DMMA.16x8x")?.1.split_once(' ')?;
    let depth: u32 = shape.parse().ok()?;
    let numbers = operands.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse::<u32>().ok());
    Some(numbers.zip([8, depth, depth / 2, 8]).map(|(first, count)| first..first + count).collect())
}

/// Whether an instruction has a register as an operand, alone or as the second of a pair.
fn uses_register(line: &str, register: u32) -> bool {
    let mut tokens = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    let (single, pair) = (format!("R{register}"), format!("R{}.64", register.wrapping_sub(1)));
    tokens.any(|token| token == pair || token.split('.').next() == Some(single.as_str()))
}

#[test]
fn fragment_moves_counts_operands_without_addresses() {
    let product = "DMMA.16x8x16 R64, R32, R80, R64 ;";
    let listing = |middle: &str| format!("{product}\n{middle}\n{product}");
    for (middle, moves) in [
        ("IMAD.MOV.U32 R47, RZ, RZ, R2 ;", 1),
        ("@P0 MOV R87, R2 ;\nIADD3 R5, R6, R7, RZ ;", 1),
        ("IMAD.MOV.U32 R48, RZ, RZ, R2 ;", 0),
        ("IMAD.MOV.U32 R33, RZ, RZ, R2 ;\nLDGSTS.E.BYPASS.128 [R19], desc[UR4][R32.64], !P0 ;\nLDS.128 R32, [R9] ;", 0),
    ] {
        assert_eq!(fragment_moves(&listing(middle)), moves, "{middle}");
    }
}
