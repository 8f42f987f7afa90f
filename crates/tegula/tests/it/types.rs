//! Checks the type tables of documents against the element types.

use std::path::Path;

use tegula::element::Type;

/// Rows of Markdown tables: types of A and B, accumulator type, type of C.
fn rows(file: &str) -> Vec<[String; 3]> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    let text = std::fs::read_to_string(path).unwrap().replace(['`', '/'], "");
    let rows = text.lines().filter_map(|line| {
        let cells = line.trim().strip_prefix('|')?.strip_suffix('|')?.split('|');
        cells.map(|cell| cell.trim().to_string()).collect::<Vec<_>>().try_into().ok()
    });
    let tail = rows.skip_while(|[types, ..]: &[String; 3]| types != "types" && types != "A, B").skip(2);
    tail.take_while(|[types, ..]| types.split(", ").any(|name| Type::operand_named(name).is_some())).collect()
}

#[test]
fn documents_list_the_types_of_the_table() {
    for file in ["README.md", "crates/tegula-core/src/element.rs"] {
        let rows = rows(file);
        let listed: Vec<_> = rows.iter().flat_map(|[types, ..]| types.split(", ")).collect();
        assert_eq!(listed, Type::OPERANDS.map(Type::name), "{file}");
        for ([types, accumulator, out], name) in
            rows.iter().flat_map(|row| row[0].split(", ").map(move |name| (row, name)))
        {
            let ty = Type::operand_named(name).unwrap();
            let is = |cell: &str, is: Type| match cell.split(&[' ', ','][..]).next() {
                Some("themselves" | "the") => is == ty,
                first => first == Some(is.name()),
            };
            assert!(
                is(accumulator, ty.accumulator()) && is(out, ty.output()),
                "{file}: {types} | {accumulator} | {out}"
            );
        }
    }
}
