//! What the assembler makes of shared memory's loads. Where `ptxas` and `nvdisasm` are not found the tests say that they are skipped;
//! `TEGULA_REQUIRE_PTXAS=1` makes that a failure.

use tegula_core::element::Type;
use tegula_explain::Error;
use tegula_explain::product::Product;
use tegula_explain::sass::{Instruction, Tools};
use tegula_kernels::{Blocked, Plain};

fn tools() -> Option<Tools> {
    let tools = Tools::find();
    let required = std::env::var("TEGULA_REQUIRE_PTXAS").is_ok_and(|required| required == "1");
    assert!(tools.is_some() || !required, "no ptxas and nvdisasm, which TEGULA_REQUIRE_PTXAS=1 asks for");
    if tools.is_none() {
        println!("skipped: no ptxas and nvdisasm");
    }
    tools
}

#[test]
fn four_neighbours_are_one_load() {
    let Some(tools) = tools() else { return };
    let product = Product::new(Plain::named("K6").unwrap(), [64, 64, 64]).unwrap();
    let image = tegula_ir::ptx::print(product.kernel()).unwrap();
    let listing = tools.disassemble(&image, "sm_90").unwrap();
    assert!((16..=64).contains(&listing.registers) && listing.spilled == 0, "{listing:?}");
    let [is, wide] = ["LDS", "LDS.128"].map(|opcode| {
        let named = |code: &&Instruction| code.text.split_whitespace().any(|word| word == opcode);
        listing.code.iter().filter(named).count()
    });
    // A row of 32 numbers of A's tile by eight loads, a column of B's by 32.
    assert_eq!((is, wide), (32, 8));
    // 4 blocks of 32 warps, 2 steps: 64 loads of a number, or 8 of four and 32 of one. A broadcast of 16 bytes takes two wavefronts.
    let shared = product.assembled(&image, &listing).unwrap();
    let written = product.profile().unwrap().outcome.counters;
    assert_eq!((written.shared_load_requests, written.shared_load_wavefronts), (4 * 32 * 2 * 64, 4 * 32 * 2 * 64));
    assert_eq!((shared.load_requests, shared.load_wavefronts), (4 * 32 * 2 * 40, 4 * 32 * 2 * (8 * 2 + 32)));
    assert_eq!(shared.store_requests, written.shared_store_requests);
    assert_eq!(shared.store_wavefronts, written.shared_store_wavefronts);
}

#[test]
fn what_is_wide_already_stays() {
    let Some(tools) = tools() else { return };
    let tile = Blocked::named("register_32x32x32_32x32_8x4_3_4_4", Type::F32).unwrap();
    let product = Product::new(Blocked { vectors: [true; 3], ..tile }, [64, 32, 96]).unwrap();
    let image = tegula_ir::ptx::print(product.kernel()).unwrap();
    let shared = product.assembled(&image, &tools.disassemble(&image, "sm_90").unwrap()).unwrap();
    let written = product.profile().unwrap().outcome.counters;
    assert_eq!(shared.load_requests, written.shared_load_requests);
    assert_eq!(shared.load_wavefronts, written.shared_load_wavefronts);
    assert_eq!(shared.store_wavefronts, written.shared_store_wavefronts);
}

/// Machine code of another kernel, or a load that is in none, is not counted as if it were right.
#[test]
fn machine_code_of_something_else_is_told() {
    let Some(tools) = tools() else { return };
    let product = |name: &str| Product::new(Plain::named(name).unwrap(), [32, 32, 32]).unwrap();
    let (tiled, naive) = (product("K6"), product("K1"));
    let [image, other] = [&tiled, &naive].map(|product| tegula_ir::ptx::print(product.kernel()).unwrap());
    let mut listing = tools.disassemble(&image, "sm_90").unwrap();
    assert!(matches!(tiled.assembled(&other, &listing), Err(Error::Unlike(_))));
    let load = listing.code.iter().position(|code| code.text.starts_with("LDS R")).unwrap();
    listing.code.remove(load);
    assert!(matches!(tiled.assembled(&image, &listing), Err(Error::Unlike(_))));
    assert!(matches!(tools.disassemble(&image, "sm_1"), Err(Error::Tool { why, .. }) if why.contains("sm_1")));
}
