//! N-dimensional arrays: layouts, owned arrays and views. Their products are in `tegula::nd`.

mod array;
mod layout;

pub use array::{NdArray, NdView, NdViewMut};
pub use layout::{NdLayout, display, len};
