//! Initial values of variables.

use crate::ast::{Initializer, ScalarType, Variable};

use super::Result;
use super::constant::Constant;
use super::cursor::Cursor;

/// Largest number of elements of an initial value in which inner braces omit elements.
const MAX_FILLED: usize = 1 << 22;

impl Cursor<'_> {
    /// Parses an initial value, after the `=`. It determines the extent of an array `[]`.
    pub fn initial_value(&mut self, variable: &mut Variable) -> Result<()> {
        let mut extents = variable.dims.clone();
        if variable.vector > 1 {
            extents.push(u64::from(variable.vector));
        }
        let count = self.initial_part(&extents, variable.ty, &mut variable.init)?;
        if let Some(outermost @ 0) = variable.dims.first_mut() {
            *outermost = count;
        }
        Ok(())
    }

    /// Parses the value of an array of the given extents, or of an element if `extents` is empty.
    /// Returns the number of its outermost elements.
    fn initial_part(&mut self, extents: &[u64], ty: ScalarType, init: &mut Vec<Initializer>) -> Result<u64> {
        let Some((&extent, inner)) = extents.split_first() else {
            init.push(self.initial_element(ty)?);
            return Ok(1);
        };
        self.expect_as("{", " before the elements of an array or a vector")?;
        let size = inner.iter().fold(1u64, |size, &extent| size.saturating_mul(extent));
        let start = init.len();
        let mut count = 0u64;
        self.list_until("}", |cursor| {
            count += 1;
            // Only an outermost `[]` has no extent.
            if extent != 0 && count > extent {
                return Err(cursor.error(format!("the initial value has more than {extent} elements")));
            }
            // Zeros for elements that the previous braces omitted. Zeros at the end are not stored.
            let begin = (count - 1).saturating_mul(size).saturating_add(start as u64);
            cursor.fill(init, begin)?;
            cursor.initial_part(inner, ty, init)
        })?;
        Ok(count)
    }

    /// Appends zeros until the initial value has `length` elements.
    fn fill(&self, init: &mut Vec<Initializer>, length: u64) -> Result<()> {
        if length <= init.len() as u64 {
            return Ok(());
        }
        if length > MAX_FILLED as u64 {
            return Err(self.error(format!("an initial value of more than {MAX_FILLED} elements must list them all")));
        }
        init.resize(length as usize, Initializer::Bits(0));
        Ok(())
    }

    /// Parses a number, or the address of a symbol: `a`, `a+8`, `generic(a)+8`, `0xFF(a)`.
    fn initial_element(&mut self, ty: ScalarType) -> Result<Initializer> {
        if self.is_name() {
            return self.symbol_address(None);
        }
        let start = self.token();
        let value = self.constant()?;
        let mask = match value {
            Constant::Signed(mask) if self.is_symbol("(") => Some(mask as u64),
            Constant::Unsigned(mask) if self.is_symbol("(") => Some(mask),
            _ => None,
        };
        if let Some(mask) = mask {
            let shift = mask.checked_ilog2().map_or(0, |bit| bit / 8 * 8);
            if mask != 0xff << shift {
                return Err(self.error_at(start, "a mask of an address must select one byte: 0xFF, 0xFF00, …"));
            }
            self.advance();
            let address = self.symbol_address(Some(shift))?;
            self.expect(")")?;
            return Ok(address);
        }
        let single = |value: f64| u64::from((value as f32).to_bits());
        Ok(Initializer::Bits(match (value, ty) {
            (Constant::Signed(_) | Constant::Unsigned(_), ScalarType::F32 | ScalarType::F64) => {
                return Err(self.error_at(start, format!("a number of type .{} needs a decimal point", ty.name())));
            }
            (Constant::Signed(value), _) => value as u64,
            (Constant::Unsigned(value), _) => value,
            // The 32 bits are stored unconverted, also in an element of 64 bits, as `ptxas` does.
            (Constant::F32(bits), ScalarType::B32 | ScalarType::F32 | ScalarType::B64 | ScalarType::F64) => {
                u64::from(bits)
            }
            (Constant::F64(value), ScalarType::B32 | ScalarType::F32) => single(value),
            (Constant::F64(value), ScalarType::B64 | ScalarType::F64) => value.to_bits(),
            _ => {
                return Err(
                    self.error_at(start, format!("a floating-point number in a variable of type .{}", ty.name()))
                );
            }
        }))
    }

    /// Parses `a`, `generic(a)`, or either plus an offset in bytes.
    fn symbol_address(&mut self, shift: Option<u32>) -> Result<Initializer> {
        let mut symbol = self.word("the name of a variable or a function")?;
        let generic = symbol == "generic" && self.eat("(");
        if generic {
            symbol = self.word("the name of a variable or a function")?;
            self.expect(")")?;
        }
        let offset = self.offset()?;
        Ok(Initializer::Address { symbol: symbol.into(), offset, generic, shift })
    }

    /// Parses an optional `+ n` or `- n`; 0 if it is omitted.
    pub fn offset(&mut self) -> Result<i64> {
        if self.eat("+") || self.is_symbol("-") { self.integer_constant("an offset") } else { Ok(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(text: &str) -> Result<Variable> {
        Cursor::new(text).variables(false).map(|mut variables| variables.remove(0))
    }

    fn bits(text: &str) -> Vec<u64> {
        let init = variable(text).unwrap().init;
        let bits = |element: &Initializer| match element {
            Initializer::Bits(bits) => *bits,
            Initializer::Address { .. } => panic!("{text}"),
        };
        init.iter().map(bits).collect()
    }

    #[test]
    fn initial_values_of_arrays_are_flat_with_zeros_for_missing_elements() {
        assert_eq!(bits(".global .b8 a[2][3][2] = {{{1}, {2, 3}}, {{}, {4}}};"), [1, 0, 2, 3, 0, 0, 0, 0, 4]);
        assert_eq!(bits(".global .v2 .u16 a[2] = {{1}, {2, 3}};"), [1, 0, 2, 3]);
        assert!(bits(".global .b8 a[5] = {};").is_empty());
        let open = variable(".global .s32 a[][2] = {{-1, 0}, {0, 5}, {7}};").unwrap();
        assert_eq!((open.dims.as_slice(), open.init.len()), ([3, 2].as_slice(), 5));
    }

    #[test]
    fn numbers_take_the_type_of_the_variable() {
        assert_eq!(
            bits(".const .f32 a[3] = {0f3F800000, 1.5, -0d3FF0000000000000};"),
            [0x3f80_0000, 0x3fc0_0000, 0xbf80_0000]
        );
        assert_eq!(bits(".const .b64 a[2] = {1.5, 0f3F800000};"), [1.5f64.to_bits(), 0x3f80_0000]);
        assert_eq!(bits(".const .b32 a[2] = {1.5, 1 + 2 * 3};"), [0x3fc0_0000, 7]);
    }

    #[test]
    fn addresses_of_symbols_have_offsets_and_masks() {
        let text = ".global .u64 a[6] = {f, b+8, b+-8, generic(b), generic(b)+4*2, 0xFF00(generic(b)+1)};";
        let parts: Vec<_> = variable(text)
            .unwrap()
            .init
            .into_iter()
            .map(|element| match element {
                Initializer::Address { symbol, offset, generic, shift } => (symbol, offset, generic, shift),
                Initializer::Bits(bits) => panic!("{bits}"),
            })
            .collect();
        let expected = [
            ("f", 0, false, None),
            ("b", 8, false, None),
            ("b", -8, false, None),
            ("b", 0, true, None),
            ("b", 8, true, None),
            ("b", 1, true, Some(8)),
        ];
        assert_eq!(
            parts,
            expected.map(|(symbol, offset, generic, shift)| (symbol.to_string(), offset, generic, shift))
        );
    }

    #[test]
    fn initial_values_that_do_not_fit_are_rejected() {
        for (value, message) in [
            ("b8 a[2] = {1, 2, 3}", "the initial value has more than 2 elements"),
            ("b8 a[2][2] = {1, 2}", "expected \"{\" before the elements of an array or a vector, found \"1\""),
            ("b8 a[2] = {{1}}", "expected a number, found \"{\""),
            ("b8 a[2] = {1,}", "expected a number, found \"}\""),
            ("b8 a[4] = \"abc\"", "expected \"{\" before the elements of an array or a vector, found a string"),
            ("f32 a = 1", "a number of type .f32 needs a decimal point"),
            ("u32 a = 1.5", "a floating-point number in a variable of type .u32"),
            ("u8 a = 0xFE(b)", "a mask of an address must select one byte: 0xFF, 0xFF00, …"),
            ("u64 a = b+1.5", "an offset must be an integer"),
            (
                "b8 a[2][1000000000000] = {{1}, {2}}",
                "an initial value of more than 4194304 elements must list them all",
            ),
        ] {
            let error = variable(&format!(".global .{value};")).unwrap_err();
            assert_eq!(error.message, message, "{value}");
        }
    }
}
