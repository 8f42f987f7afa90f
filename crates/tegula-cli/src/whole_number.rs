//! A parser of whole numbers on the command line.

/// A parser of whole numbers of at min `min`.
pub fn whole<T: TryFrom<u64>>(min: u64) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|number| *number >= min).and_then(|number| T::try_from(number).ok());
        let too_large = digits && text.trim_start_matches('0').len() > min.to_string().len();
        number
            .ok_or_else(|| if too_large { "too large".into() } else { format!("not a whole number of at least {min}") })
    }
}
