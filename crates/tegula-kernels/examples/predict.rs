//! Predicted times of measured kernels, for the fits in `benchmarks/cost`.
//!
//! `predict FILE` reads measurements, a line each: a product and its GPU (as `parse_product`
//! documents), microseconds, and the name of a recipe. It writes a line of
//! `name=value` for each constant. Then it answers each line of values on its standard input with a
//! line of predicted microseconds, one for each measurement: `nan` for a recipe that is no longer a
//! candidate, whatever its number of stages. A kernel without such constants keeps its time.
//!
//! `predict FILE --features` writes a line of `name=value` for each constant of the correction of
//! predicted times instead. Then it writes a line for each measurement: the features of a pipeline
//! that the correction knows, or `nan` for any other recipe.

use std::collections::HashMap;
use std::io::{BufRead, Write};

use tegula_kernels::plan::fit::{Costs, MeasuredRecipes, correction_constants, correction_features, parse_product};
use tegula_kernels::plan::{Candidate, GpuDescription, Problem};

type Failure = Box<dyn std::error::Error>;

/// A product on a GPU, and its candidates by name.
struct Case {
    problem: Problem,
    gpu: GpuDescription,
    recipes: MeasuredRecipes,
}

fn main() -> Result<(), Failure> {
    let path = std::env::args().nth(1).ok_or("usage: predict FILE [--features]")?;
    let text = std::fs::read_to_string(path)?;
    let mut cases: HashMap<&str, Case> = HashMap::new();
    let mut measured = Vec::new();
    for line in text.lines() {
        let (rest, name) = line.rsplit_once(' ').ok_or("a line without a recipe")?;
        let (product, _) = rest.rsplit_once(' ').ok_or("a line without a time")?;
        if !cases.contains_key(product) {
            cases.insert(product, case(product)?);
        }
        measured.push((product, cases[product].recipes.get(name)));
    }
    if std::env::args().nth(2).is_some_and(|option| option == "--features") {
        println!("{}", correction_constants().map(|(name, value)| format!("{name}={value}")).join(" "));
        for (product, candidate) in measured {
            let Case { problem, gpu, .. } = &cases[product];
            let features = candidate.and_then(|one| correction_features(problem, &one.recipe, gpu));
            let texts = features.iter().flatten().map(f64::to_string).collect::<Vec<_>>();
            println!("{}", if texts.is_empty() { "nan".into() } else { texts.join(" ") });
        }
        return Ok(());
    }
    let mut costs = Costs::FITTED;
    let mut names = Vec::new();
    costs.visit(&mut |name, value| names.push(format!("{name}={value}")));
    println!("{}", names.join(" "));
    for input in std::io::stdin().lock().lines() {
        let input = input?;
        let mut values = input.split(' ').map(str::parse::<f64>);
        let mut outcome = Ok(());
        costs.visit(&mut |name, value| match values.next() {
            Some(Ok(new)) => *value = new,
            _ => outcome = Err(format!("no number for {name}")),
        });
        outcome?;
        let time = |&(product, candidate): &(&str, Option<Candidate>)| {
            let (Case { problem, gpu, .. }, candidate) = (&cases[product], candidate?);
            costs.time(problem, &candidate.recipe, gpu).or(candidate.microseconds)
        };
        let times = measured.iter().map(|one| time(one).map_or_else(|| "nan".into(), |time| format!("{time:.6}")));
        println!("{}", times.collect::<Vec<_>>().join(" "));
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// The case of a line.
fn case(text: &str) -> Result<Case, Failure> {
    let (problem, gpu) = parse_product(text).ok_or_else(|| format!("{text}: no product of a measurement"))?;
    let recipes = MeasuredRecipes::of(problem, gpu);
    Ok(Case { problem, gpu, recipes })
}
