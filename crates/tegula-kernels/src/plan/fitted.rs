//! Constants of the cost models that are fitted to measurements, as data that a fit can vary.

/// Calls a function with the name and the value of each constant, in a fixed order. A name in
/// an array ends in the index.
pub trait Constants {
    /// Visits all constants.
    fn visit(&mut self, name: &str, visitor: &mut dyn FnMut(&str, &mut f64));
}

impl Constants for f64 {
    fn visit(&mut self, name: &str, visitor: &mut dyn FnMut(&str, &mut f64)) {
        visitor(name, self);
    }
}

impl<T: Constants, const N: usize> Constants for [T; N] {
    fn visit(&mut self, name: &str, visitor: &mut dyn FnMut(&str, &mut f64)) {
        self.iter_mut().enumerate().for_each(|(i, item)| item.visit(&format!("{name}_{i}"), visitor));
    }
}

/// Defines a struct of constants, and its associated constant `FITTED` with their fitted values.
macro_rules! fitted {
    ($(#[$text:meta])* $name:ident { $($(#[$doc:meta])* $field:ident: $ty:ty = $value:expr,)* }) => {
        $(#[$text])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name {
            $($(#[$doc])* pub $field: $ty,)*
        }

        impl $name {
            /// The fitted values.
            pub const FITTED: $name = $name { $($field: $value,)* };
        }

        impl crate::plan::fitted::Constants for $name {
            fn visit(&mut self, _: &str, visitor: &mut dyn FnMut(&str, &mut f64)) {
                $(crate::plan::fitted::Constants::visit(&mut self.$field, stringify!($field), visitor);)*
            }
        }
    };
}
pub(super) use fitted;
