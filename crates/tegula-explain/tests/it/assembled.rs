//! Shared memory counters at machine widths.
//!
//! Without `ptxas` and `nvdisasm` the tests are skipped; `TEGULA_REQUIRE_PTXAS=1` makes that a
//! failure.

use tegula_core::element::Type;
use tegula_explain::Error;
use tegula_explain::sample_launch::SampleLaunch;
use tegula_explain::sass::{Instruction, Tools};
use tegula_kernels::{Blocked, Plain};

fn tools() -> Option<Tools> {
    let tools = Tools::find();
    let required = std::env::var("TEGULA_REQUIRE_PTXAS").is_ok_and(|required| required == "1");
    assert!(tools.is_some() || !required, "ptxas and nvdisasm not found, and TEGULA_REQUIRE_PTXAS=1");
    if tools.is_none() {
        println!("skipped: ptxas and nvdisasm not found");
    }
    tools
}

#[test]
fn assembler_merges_four_adjacent_loads() {
    let Some(tools) = tools() else { return };
    let launch = SampleLaunch::new(Plain::named("K6").unwrap(), [64, 64, 64]).unwrap();
    let image = tegula_ir::ptx::print(launch.kernel()).unwrap();
    let listing = tools.disassemble(&image, "sm_90").unwrap();
    assert!((16..=64).contains(&listing.registers) && listing.spilled == 0, "{listing:?}");
    let [all, wide] = ["LDS", "LDS.128"].map(|opcode| {
        let named = |code: &&Instruction| code.text.split_whitespace().any(|word| word == opcode);
        listing.code.iter().filter(named).count()
    });
    // A row of 32 elements of A's tile takes eight loads, a column of B's 32.
    assert_eq!((all, wide), (32, 8));
    // 4 blocks of 32 warps, 2 k-steps: 64 loads of one element, or 8 of four and 32 of one. A
    // broadcast of 16 bytes takes two wavefronts.
    let shared = launch.assembled(&image, &listing).unwrap();
    let written = launch.profile().unwrap().outcome.counters;
    assert_eq!((written.shared_load_requests, written.shared_load_wavefronts), (4 * 32 * 2 * 64, 4 * 32 * 2 * 64));
    assert_eq!((shared.load_requests, shared.load_wavefronts), (4 * 32 * 2 * 40, 4 * 32 * 2 * (8 * 2 + 32)));
    assert_eq!(shared.store_requests, written.shared_store_requests);
    assert_eq!(shared.store_wavefronts, written.shared_store_wavefronts);
}

#[test]
fn wide_accesses_keep_their_counts() {
    let Some(tools) = tools() else { return };
    let tile = Blocked::named("register_32x32x32_warp32x32_thread8x4_stages3_slices4_blocks4", Type::F32).unwrap();
    let launch = SampleLaunch::new(Blocked { aligned_16: [true; 3], ..tile }, [64, 32, 96]).unwrap();
    let image = tegula_ir::ptx::print(launch.kernel()).unwrap();
    let shared = launch.assembled(&image, &tools.disassemble(&image, "sm_90").unwrap()).unwrap();
    let written = launch.profile().unwrap().outcome.counters;
    assert_eq!(shared.load_requests, written.shared_load_requests);
    assert_eq!(shared.load_wavefronts, written.shared_load_wavefronts);
    assert_eq!(shared.store_wavefronts, written.shared_store_wavefronts);
}

#[test]
fn machine_code_of_another_kernel_or_without_a_load_is_a_mismatch() {
    let Some(tools) = tools() else { return };
    let launch = |name: &str| SampleLaunch::new(Plain::named(name).unwrap(), [32, 32, 32]).unwrap();
    let (tiled, naive) = (launch("K6"), launch("K1"));
    let [image, other] = [&tiled, &naive].map(|launch| tegula_ir::ptx::print(launch.kernel()).unwrap());
    let mut listing = tools.disassemble(&image, "sm_90").unwrap();
    assert!(matches!(tiled.assembled(&other, &listing), Err(Error::Mismatch(_))));
    let load = listing.code.iter().position(|code| code.text.starts_with("LDS R")).unwrap();
    listing.code.remove(load);
    assert!(matches!(tiled.assembled(&image, &listing), Err(Error::Mismatch(_))));
    assert!(matches!(tools.disassemble(&image, "sm_1"), Err(Error::Tool { reason, .. }) if reason.contains("sm_1")));
}
