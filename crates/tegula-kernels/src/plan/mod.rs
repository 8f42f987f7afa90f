//! The plan of a product: the choice of a recipe, its cost models and its launches. A pure function
//! of plain data, without I/O or calls to a device.

mod blocked_costs;
pub mod calibration;
pub(crate) mod candidates;
mod choose;
mod cost;
pub(crate) mod device;
pub mod explain;
#[doc(hidden)]
pub mod fit;
mod fitted;
pub(crate) mod groups;
pub(crate) mod hopper;
mod hopper_correction;
mod hopper_costs;
mod hopper_time;
mod hopper_trees;
mod invariant;
mod launches;
mod legal;
mod legalize;
pub mod limits;
mod memo;
mod mma_costs;
mod order;
pub(crate) mod problem;
pub(crate) mod recipe;
pub(crate) mod skinny;
mod tuned;
mod vector_costs;
mod warp_costs;
pub(crate) mod warp_tiles;

pub use choose::{Plan, choose};
pub use device::{Caps, GpuDescription};
pub use explain::Explanation;
pub use groups::grouped_kernel;
pub use invariant::{choose_invariant, keeps_order};
pub use launches::{Argument, Launch, Launches, Operands, Workspace};
pub use legal::legal;
pub use legalize::{Candidate, Recipe};
pub use memo::choose_cached;
pub use order::{Addition, Lanes, Order};
pub use problem::{OperandLayout, Problem};
pub use recipe::{RecipeOf, Split, SplitReduction};
pub use tuned::{Calibrated, TunedEntry, TuningKey, TuningTable, TuningTableError, UNTUNED};
