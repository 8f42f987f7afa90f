//! The number types that GPU memory holds.

use bytemuck::Pod;

use crate::element::Scalar;

/// A number type that lies in GPU memory as it does on the host.
pub trait Stored: Scalar + Pod {}

impl<T: Scalar + Pod> Stored for T {}
