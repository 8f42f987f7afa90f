//! The plan of a product as JSON.

use serde::Serialize;
use tegula_kernels::plan::Explanation;
use tegula_kernels::plan::explain::Operand;

/// The object of `--explain-plan --json`.
#[derive(Debug, Serialize)]
pub struct Plan<'a> {
    /// How A and B were read: mapped, read into memory or converted.
    read: [&'a str; 2],
    device: &'a str,
    kernel: &'a str,
    /// Whether the kernel comes from the tuning cache.
    tuned: bool,
    /// Number of batched GEMMs.
    products: usize,
    /// Matrices in each of them.
    batch: usize,
    m: usize,
    n: usize,
    k: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    launch: Option<Launch>,
    operands: Vec<PlannedOperand<'a>>,
    /// Bytes of workspace besides the operands.
    device_bytes: u128,
    host_bytes: u128,
}

#[derive(Debug, Serialize)]
struct Launch {
    tile: [u32; 2],
    grid: [u32; 3],
    block: [u32; 3],
}

#[derive(Debug, Serialize)]
struct PlannedOperand<'a> {
    name: &'static str,
    dtype: &'static str,
    shape: &'a [usize],
    strides: &'a [isize],
    place: &'a str,
    /// The line of the text report: whether it is copied, and why.
    taken: String,
}

impl<'a> Plan<'a> {
    /// The object of a plan, and of how A and B were read.
    pub fn new(plan: &'a Explanation, read: [&'a str; 2]) -> Self {
        let operand = |operand: &'a Operand| PlannedOperand {
            name: operand.name,
            dtype: operand.ty.name(),
            shape: &operand.shape,
            strides: &operand.strides,
            place: &operand.memory,
            taken: operand.to_string(),
        };
        Plan {
            read,
            device: &plan.device,
            kernel: &plan.kernel,
            tuned: plan.tuned,
            products: plan.products,
            batch: plan.batches,
            m: plan.m,
            n: plan.n,
            k: plan.k,
            launch: plan.launch.as_ref().map(|launch| Launch {
                tile: launch.tile,
                grid: launch.grid,
                block: launch.block,
            }),
            operands: plan.operands.iter().chain(&plan.bias).map(operand).collect(),
            device_bytes: plan.device_bytes,
            host_bytes: plan.host_bytes,
        }
    }
}
