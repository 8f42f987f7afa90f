//! Calls of host functions: constant values for their parameters and template parameters.

use rustc_hash::FxHashMap;

use super::constant::{Value, evaluate};
use super::declaration::Declaration;
use super::environment::{Environment, param_names};
use super::token::{Token, close, close_angle, split};

/// Constant arguments of the calls in a program.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// By name of the function. `None` if calls differ, or if an argument is not constant.
    arguments: FxHashMap<String, Vec<Option<Value>>>,
}

/// Maximum number of calls of one template that are used.
const LIMIT: usize = 64;

impl Calls {
    /// Collects the calls between host functions.
    pub(super) fn read(tokens: &[Token], host: &[&Declaration], global: &Environment<'_>) -> Self {
        let mut calls = Self::default();
        let known: FxHashMap<&str, usize> =
            host.iter().map(|d| (d.name(tokens), split(tokens.get(d.params.clone()).unwrap_or(&[])).len())).collect();
        let mut found: Vec<(&str, Vec<Option<Value>>)> = Vec::new();
        for declaration in host {
            let mut environment = global.clone();
            environment.enter(tokens, declaration);
            let end = declaration.body.end;
            environment.read(tokens, declaration.body.clone(), &mut |environment, at| {
                // Recursive calls are ignored: the arguments of the first call are relevant.
                let itself = declaration.name(tokens);
                let Some(token) = tokens.get(at).filter(|t| t.is_name() && !t.is(itself)) else { return };
                let Some((name, &params)) = known.get_key_value(&*token.text) else { return };
                let list = tokens.get(at + 1).filter(|t| t.is("<")).and_then(|_| close_angle(tokens, at + 1, end));
                let open = list.unwrap_or(at + 1);
                if !tokens.get(open).is_some_and(|t| t.is("(")) {
                    return;
                }
                let actual = split(tokens.get(open + 1..close(tokens, open, end).saturating_sub(1)).unwrap_or(&[]));
                let mut values: Vec<_> = actual.iter().map(|part| evaluate(part, environment)).collect();
                values.resize(params, None);
                found.push((name, values));
            });
        }
        for (name, values) in found {
            match calls.arguments.get_mut(name) {
                None => drop(calls.arguments.insert(name.to_owned(), values)),
                Some(known) => {
                    for (known, value) in known.iter_mut().zip(values) {
                        *known = known.filter(|known| Some(*known) == value);
                    }
                }
            }
        }
        calls
    }

    /// The environment at the beginning of a function.
    fn environment<'a>(
        &self,
        tokens: &[Token],
        declaration: &Declaration,
        global: &Environment<'a>,
    ) -> Environment<'a> {
        let mut environment = global.clone();
        environment.enter(tokens, declaration);
        let values = self.arguments.get(declaration.name(tokens)).map_or(&[][..], Vec::as_slice);
        for (name, value) in param_names(tokens, declaration).iter().zip(values) {
            environment.set(name, *value);
        }
        environment
    }

    /// The environments of a function: for a template, one for each call such as `run<16>(…)`.
    pub(super) fn environments<'a>(
        &self,
        tokens: &[Token],
        declaration: &Declaration,
        global: &Environment<'a>,
    ) -> Vec<Environment<'a>> {
        let mut plain = self.environment(tokens, declaration, global);
        let params = declaration.template.clone().map(|range| split(tokens.get(range).unwrap_or(&[])));
        let Some(params) = params.filter(|params| !params.is_empty()) else { return vec![plain] };
        let names: Vec<&Token> = params.iter().filter_map(|p| p.iter().rev().find(|t| t.is_name())).collect();
        for name in &names {
            plain.set(&name.text, None);
        }
        let name = declaration.name(tokens);
        let mut bound: Vec<Environment<'a>> = Vec::new();
        for (at, _) in tokens.iter().enumerate().filter(|(_, t)| t.is_name() && t.is(name)) {
            let Some(end) =
                close_angle(tokens, at + 1, tokens.len()).filter(|_| tokens.get(at + 1).is_some_and(|t| t.is("<")))
            else {
                continue;
            };
            if !tokens.get(end).is_some_and(|t| t.is("(")) || bound.len() >= LIMIT {
                continue;
            }
            let mut environment = plain.clone();
            for (name, argument) in names.iter().zip(split(tokens.get(at + 2..end - 1).unwrap_or(&[]))) {
                environment.set(&name.text, evaluate(argument, global));
                environment.types.aliases.insert(name.text.to_string(), argument.to_vec());
            }
            bound.push(environment);
        }
        if bound.is_empty() { vec![plain] } else { bound }
    }
}
