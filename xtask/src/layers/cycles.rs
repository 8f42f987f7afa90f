//! Import cycles among files of a crate.

use std::collections::{BTreeMap, BTreeSet};

use super::{Source, imports};

/// Cycles, each as the sorted names of its files.
pub fn find(sources: &[Source]) -> Vec<Vec<String>> {
    let graph = graph(sources);
    let reached: BTreeMap<usize, BTreeSet<usize>> = graph.keys().map(|&file| (file, reachable(&graph, file))).collect();
    let mut cycles = BTreeSet::new();
    for (file, reaches) in &reached {
        if reaches.contains(file) {
            let members = reaches.iter().filter(|other| reached[other].contains(file));
            cycles.insert(members.map(|&other| sources[other].path.clone()).collect::<Vec<_>>());
        }
    }
    cycles.into_iter().collect()
}

/// Imported files of each file.
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

/// Files reachable from a file.
fn reachable(graph: &BTreeMap<usize, BTreeSet<usize>>, from: usize) -> BTreeSet<usize> {
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
    fn find_reports_a_cycle_once() {
        let files = [("lib", ""), ("a", "use crate::b::B;"), ("b", "use crate::c::d::D;"), ("c/d", "use crate::a::A;")];
        assert_eq!(find(&sources(&files)), [["a", "b", "c/d"]]);
    }

    #[test]
    fn find_acyclic_imports_is_empty() {
        let files =
            [("a", "use crate::b::B;\nuse super::c::C;"), ("b", "use crate::c::C;"), ("c", "use crate::Error;")];
        assert!(find(&sources(&files)).is_empty());
    }
}
