//! Selection of an array of a container by name.

use crate::{ErrorMessage, display};

/// Index of the array `wanted`, or of the only array if no name is given.
pub(crate) fn select(names: &[String], wanted: Option<&str>) -> Result<usize, ErrorMessage> {
    let listed = || display::names(names.iter().map(String::as_str));
    match (wanted, names) {
        (_, []) => Err("contains no arrays".into()),
        (None, [_]) => Ok(0),
        (None, [first, ..]) => {
            let (count, first) = (names.len(), display::name(first));
            Err(format!("contains {count} arrays; append one name, such as ':{first}': {}", listed()))
        }
        (Some(wanted), _) => {
            let position = names.iter().position(|name| name == wanted);
            position
                .ok_or_else(|| format!("array '{}' not found; the file contains {}", display::name(wanted), listed()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn select_requires_a_name_among_several_arrays() {
        let names: Vec<String> = (0..12).map(|i| format!("w{i}\n")).collect();
        assert_eq!(select(&names[..1], None), Ok(0));
        assert_eq!(select(&names, Some("w3\n")), Ok(3));
        let error_message = select(&names, None).unwrap_err();
        assert_eq!(
            error_message,
            "contains 12 arrays; append one name, such as ':w0\\n': w0\\n, w1\\n, w2\\n, w3\\n, w4\\n, w5\\n, w6\\n, w7\\n, w8\\n, w9\\n and 2 more"
        );
        assert_eq!(select(&names[..1], Some("x")).unwrap_err(), "array 'x' not found; the file contains w0\\n");
        assert_eq!(select(&[], None).unwrap_err(), "contains no arrays");
    }
}
