use super::*;

/// The variants of [`Type`] are lowercase in files that serde writes.
#[test]
fn type_name_is_the_lowercase_variant() {
    for ty in Type::ALL {
        assert_eq!(ty.name(), format!("{ty:?}").to_lowercase());
        assert_eq!(Type::operand_named(ty.name()), ty.is_operand().then_some(*ty));
    }
    assert!(Type::ALL.starts_with(&Type::OPERANDS));
}

#[test]
fn table_format_matches_the_rust_type() {
    let power = |exponent: i32| 2f64.powi(exponent);
    for &ty in Type::ALL {
        let (rounded, bits) = (|x: f64| ty.to_f64(ty.round(x)), 8 * ty.size() as i32);
        assert_eq!([0.0, 1.0].map(rounded), [0.0, 1.0], "{ty}");
        match ty.kind() {
            TypeKind::Float(FloatFormat { precision, min_exponent, max_exponent }) => {
                let epsilon = power(1 - precision);
                assert_eq!(rounded(1.0 + epsilon), 1.0 + epsilon, "{ty}");
                assert_eq!(rounded(1.0 + epsilon / 2.0), 1.0, "{ty}: ties go to even");
                assert_eq!(rounded(-1.0 - 1.5 * epsilon), -1.0 - 2.0 * epsilon, "{ty}: ties go to even");
                assert_eq!(rounded(power(max_exponent)), power(max_exponent), "{ty}");
                assert!(ty == Type::F64 || rounded(2.0 * power(max_exponent)) != 2.0 * power(max_exponent), "{ty}");
                let smallest = f64::from_bits(1).max(power(min_exponent - precision + 1));
                assert_eq!(rounded(smallest), smallest, "{ty}");
                assert_eq!(rounded(smallest / 2.0), 0.0, "{ty}");
                assert!(rounded(f64::NAN).is_nan(), "{ty}");
            }
            TypeKind::Signed => {
                let max = (power(bits - 1) - 1.0).min(power(bits - 1).next_down());
                assert_eq!([-1.0, -2.5, max, -power(bits - 1)].map(rounded), [-1.0, -2.0, max, -power(bits - 1)]);
            }
            TypeKind::Unsigned => {
                let max = (power(bits) - 1.0).min(power(bits).next_down());
                assert_eq!([2.5, max].map(rounded), [2.0, max]);
            }
            TypeKind::Predicate => assert_eq!(ty.to_f64(2), 0.0),
        }
    }
}

#[test]
fn accumulator_and_output_match_the_rust_type() {
    fn types<T: Element>() -> [Type; 3] {
        assert_eq!(T::narrow(T::Acc::ONE), T::Out::ONE);
        assert_eq!((T::ONE.widen(), T::widen_out(T::Out::ONE)), (T::Acc::ONE, T::Acc::ONE));
        [T::TYPE, T::Acc::TYPE, T::Out::TYPE]
    }
    for &ty in Type::ALL {
        let types = with_operand_type!(ty, T => types::<T>(), other => [other; 3]);
        assert_eq!(types, [ty, ty.accumulator(), ty.output()]);
    }
    let mut all = Vec::new();
    macro_rules! each {
        ($($t:ty;)*) => { $(all.push(<$t as Scalar>::TYPE);)* };
    }
    for_each_operand_type!(each);
    assert_eq!(all, Type::OPERANDS);
}
