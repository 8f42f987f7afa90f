//! Files of a crate that import each other in a loop.

use std::collections::{BTreeMap, BTreeSet};

use super::{Source, imports};

/// The loops, each the names of its files, sorted.
pub fn find(sources: &[Source]) -> Vec<Vec<String>> {
    let graph = graph(sources);
    let reached: BTreeMap<usize, BTreeSet<usize>> = graph.keys().map(|&file| (file, reach(&graph, file))).collect();
    let mut loops = BTreeSet::new();
    for (file, reaches) in &reached {
        if reaches.contains(file) {
            let together = reaches.iter().filter(|other| reached[other].contains(file));
            loops.insert(together.map(|&other| sources[other].path.clone()).collect::<Vec<_>>());
        }
    }
    loops.into_iter().collect()
}

/// Of each file, the files that it imports from.
fn graph(sources: &[Source]) -> BTreeMap<usize, BTreeSet<usize>> {
    let modules: BTreeMap<Vec<String>, usize> =
        sources.iter().enumerate().map(|(number, source)| (imports::module(&source.path), number)).collect();
    let file_of = |path: &[String]| (0..=path.len()).rev().find_map(|len| modules.get(&path[..len]).copied());
    let imported = |(number, source): (usize, &Source)| {
        let paths = imports::of(&source.path, &source.code);
        let files = paths.iter().filter_map(|path| file_of(path)).filter(|&file| file != number);
        (number, files.collect())
    };
    sources.iter().enumerate().map(imported).collect()
}

/// All files that can be reached from one.
fn reach(graph: &BTreeMap<usize, BTreeSet<usize>>, from: usize) -> BTreeSet<usize> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(file) = next.pop() {
        next.extend(graph[&file].iter().filter(|&&other| reached.insert(other)));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(files: &[(&str, &str)]) -> Vec<Source> {
        files.iter().map(|(path, code)| Source { krate: "k", path: (*path).into(), code: (*code).into() }).collect()
    }

    #[test]
    fn a_loop_of_three_files_is_found_once() {
        let files = [("lib", ""), ("a", "use crate::b::B;"), ("b", "use crate::c::d::D;"), ("c/d", "use crate::a::A;")];
        assert_eq!(find(&sources(&files)), [["a", "b", "c/d"]]);
    }

    #[test]
    fn imports_that_lead_down_are_no_loop() {
        let files =
            [("a", "use crate::b::B;\nuse super::c::C;"), ("b", "use crate::c::C;"), ("c", "use crate::Error;")];
        assert!(find(&sources(&files)).is_empty());
    }
}
