//! Which kernel a product takes: plain data in, plain data out, no input or output and no calls to a device.

mod candidates;
mod choose;
mod cost;
pub mod explain;
pub mod limits;
mod memo;
mod recipe;

pub use candidates::candidates;
pub use choose::{Caps, Lie, Plan, Problem, choose};
pub use explain::Explanation;
pub(crate) use memo::chosen;
pub use recipe::{Recipe, Split};
