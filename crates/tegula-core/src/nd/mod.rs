//! Arrays of any number of axes: their layouts, owned arrays and views. Products of them are in `tegula::nd`.

mod array;
mod layout;

pub use array::{NdArray, NdView, NdViewMut};
pub use layout::{NdLayout, display, len};
