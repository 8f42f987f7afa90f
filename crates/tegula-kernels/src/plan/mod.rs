//! Which kernel a product takes: plain data in, plain data out, no input or output and no calls to a device.

mod candidates;
mod choose;
mod cost;
mod device;
pub mod explain;
mod few;
mod groups;
mod hopper;
mod launches;
mod legal;
pub mod limits;
mod memo;
mod problem;
mod recipe;
mod tuned;

pub use candidates::candidates;
pub use choose::{Plan, choose};
pub use device::Caps;
pub use explain::Explanation;
pub use groups::of_groups;
pub use launches::{Argument, Launch, Launches, Operands, Workspace};
pub use legal::{Candidate, legal};
pub use memo::chosen;
pub use problem::{Lie, Problem};
pub use recipe::{Recipe, Split};
pub use tuned::{Key, Tuned, UNTUNED, Unusable, Winner};
