//! Which kernel a product takes: plain data in, plain data out, no input or output and no calls to a device.

mod choose;
pub mod explain;
pub mod limits;
mod memo;

pub(crate) use choose::order_of;
pub use choose::{Caps, Plan, Problem, choose};
pub use explain::Explanation;
pub(crate) use memo::chosen;
