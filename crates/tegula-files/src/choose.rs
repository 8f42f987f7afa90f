//! Which array of a container is meant.

use crate::{Refusal, show};

/// The position of the array that is asked for; without a name, of the only one there is.
pub(crate) fn choose(names: &[String], wanted: Option<&str>) -> Result<usize, Refusal> {
    let listed = || show::names(names.iter().map(String::as_str));
    match (wanted, names) {
        (_, []) => Err("holds no array".into()),
        (None, [_]) => Ok(0),
        (None, [first, ..]) => {
            let (count, first) = (names.len(), show::name(first));
            Err(format!("holds {count} arrays; name one after a colon, as in ':{first}': {}", listed()))
        }
        (Some(wanted), _) => {
            let position = names.iter().position(|name| name == wanted);
            position.ok_or_else(|| format!("holds no array '{}'; it holds {}", show::name(wanted), listed()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_array_needs_no_name_and_several_are_listed() {
        let names: Vec<String> = (0..12).map(|i| format!("w{i}\n")).collect();
        assert_eq!(choose(&names[..1], None), Ok(0));
        assert_eq!(choose(&names, Some("w3\n")), Ok(3));
        let refusal = choose(&names, None).unwrap_err();
        assert_eq!(
            refusal,
            "holds 12 arrays; name one after a colon, as in ':w0\\n': w0\\n, w1\\n, w2\\n, w3\\n, w4\\n, w5\\n, w6\\n, w7\\n, w8\\n, w9\\n and 2 more"
        );
        assert_eq!(choose(&names[..1], Some("x")).unwrap_err(), "holds no array 'x'; it holds w0\\n");
        assert_eq!(choose(&[], None).unwrap_err(), "holds no array");
    }
}
