//! Which kernel a product takes: plain data in, plain data out, no input or output and no calls to a device.

pub(crate) mod candidates;
mod choose;
mod cost;
pub(crate) mod device;
pub mod explain;
pub(crate) mod few;
mod fit;
pub(crate) mod groups;
pub(crate) mod hopper;
mod launches;
mod legal;
pub mod limits;
mod memo;
pub(crate) mod problem;
pub(crate) mod recipe;
mod tuned;

pub use choose::{Plan, choose};
pub use device::{Caps, GpuDescription};
pub use explain::Explanation;
pub use fit::{Candidate, Recipe};
pub use groups::of_groups;
pub use launches::{Argument, Launch, Launches, Operands, Workspace};
pub use legal::legal;
pub use memo::chosen;
pub use problem::{Lie, Problem};
pub use recipe::{Meeting, RecipeOf, Split};
pub use tuned::{Key, Tuned, UNTUNED, Unusable, Winner};
