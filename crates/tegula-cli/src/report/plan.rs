//! What a product would do: the library's explanation, as JSON.

use serde::Serialize;
use tegula_kernels::plan::Explanation;
use tegula_kernels::plan::explain::Operand;

/// With `--explain-plan --json`, the object.
#[derive(Debug, Serialize)]
pub struct Plan<'a> {
    /// Where A and B come from, mapped, read or converted.
    read: [&'a str; 2],
    device: &'a str,
    kernel: &'a str,
    /// Whether the kernel is a winner of `tegula tune`.
    tuned: bool,
    /// How many products of matrices it is made of.
    products: usize,
    /// Matrices in each of them.
    batch: usize,
    m: usize,
    n: usize,
    k: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    launch: Option<Launch>,
    operands: Vec<Taken<'a>>,
    /// Bytes taken besides the operands.
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
struct Taken<'a> {
    name: &'static str,
    dtype: &'static str,
    shape: &'a [usize],
    strides: &'a [isize],
    place: &'a str,
    /// The line that people read: whether it is copied, and why.
    taken: String,
}

impl<'a> Plan<'a> {
    /// The plan, and how A and B were read.
    pub fn new(plan: &'a Explanation, read: [&'a str; 2]) -> Self {
        let operand = |operand: &'a Operand| Taken {
            name: operand.name,
            dtype: operand.ty.name(),
            shape: &operand.shape,
            strides: &operand.strides,
            place: &operand.place,
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
