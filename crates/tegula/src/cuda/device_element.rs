//! Element types of GPU memory.

use bytemuck::Pod;

use crate::element::Scalar;

/// An element type with the same representation in GPU and host memory.
pub trait DeviceElement: Scalar + Pod {}

impl<T: Scalar + Pod> DeviceElement for T {}
