//! Line wrapping, and coordinates as text.

/// Maximum characters of a line.
pub const WIDTH: usize = 100;

/// Coordinates of a block or thread: `1,0`, or `1,0,2` where z is not 0.
pub fn at([x, y, z]: [u32; 3]) -> String {
    if z == 0 { format!("{x},{y}") } else { format!("{x},{y},{z}") }
}

/// Grid and block, such as `2×2 blocks of 16×16 threads`.
pub fn launch(grid: [u32; 3], block: [u32; 3]) -> String {
    let extents = |[x, y, z]: [u32; 3]| match (y, z) {
        (1, 1) => x.to_string(),
        (_, 1) => format!("{x}×{y}"),
        _ => format!("{x}×{y}×{z}"),
    };
    let plural = |of: [u32; 3]| if of == [1; 3] { "" } else { "s" };
    format!("{} block{} of {} thread{}", extents(grid), plural(grid), extents(block), plural(block))
}

/// Wraps a line at spaces, to at most `width` characters; continuation lines are indented.
pub fn wrapped(line: &str, width: usize) -> Vec<String> {
    let indent = line.chars().take_while(|c| *c == ' ').count() + 4;
    let mut lines = vec![String::new()];
    let mut length = 0;
    // Runs of spaces are kept.
    for word in line.split_inclusive(' ') {
        let count = word.trim_end().chars().count();
        if length + count > width && length > indent {
            lines.push(" ".repeat(indent));
            length = indent;
            if count == 0 {
                continue;
            }
        }
        if let Some(last) = lines.last_mut() {
            last.push_str(word);
        }
        length += word.chars().count();
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launch_of_one_block_is_singular() {
        assert_eq!(launch([1; 3], [64, 1, 1]), "1 block of 64 threads");
        assert_eq!(launch([2, 1, 3], [1; 3]), "2×1×3 blocks of 1 thread");
        assert_eq!(launch([1, 2, 1], [16, 16, 1]), "1×2 blocks of 16×16 threads");
    }

    #[test]
    fn long_lines_wrap_at_spaces() {
        assert_eq!(wrapped("  one   two", 20), ["  one   two"]);
        assert_eq!(wrapped("  one two three four", 13), ["  one two", "      three", "      four"]);
        assert_eq!(wrapped("", 10), [""]);
        assert_eq!(wrapped("unbreakable", 4), ["unbreakable"]);
    }
}
