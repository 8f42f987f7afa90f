//! Launches in host code, `k<16><<<grid, block>>>(…)`, and the template instances that they use.

use super::blank::is_device;
use super::calls::Calls;
use super::constant::{Value, evaluate};
use super::declaration::{Declaration, Kind};
use super::environment::{Environment, Functions};
use super::preprocess::{Preprocessed, SourceFile};
use super::signature::{Kernel, TemplateParam};
use super::token::{Token, close, close_angle, join, split, written};
use super::types::{Types, may_be_type};
use super::{LaunchArgument, ProposedLaunch};

/// An instance of a kernel template, or a kernel that is not a template.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Instance {
    /// Index of the kernel.
    pub(super) kernel: usize,
    /// Template arguments: numbers, or types as written. Empty if it is not a template.
    pub(super) arguments: Vec<String>,
}

/// A launch of a kernel or of an instance.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    /// Template arguments; `None` if they are unknown.
    pub(super) arguments: Option<Vec<String>>,
    pub(super) kernel: usize,
    pub(super) launch: ProposedLaunch,
}

/// Launches and instances of a program.
#[derive(Debug, Default)]
pub(super) struct Launches {
    pub(super) launches: Vec<Launch>,
    pub(super) instances: Vec<Instance>,
}

/// Maximum number of instances and of launches.
const LIMIT: usize = 64;

/// Runtime functions that launch a kernel: `f((void*)k, grid, block, arguments, shared, stream)`.
const FUNCTIONS: [&str; 2] = ["cudaLaunchKernel", "cudaLaunchCooperativeKernel"];

/// Finds the launches and instances in the host code of a program.
pub(super) fn launches(
    program: &Preprocessed,
    declarations: &[Declaration],
    functions: &Functions,
    kernels: &[Kernel],
    types: &Types,
) -> Launches {
    let tokens = &program.tokens[..];
    let mut found = Launches::default();
    let global = Environment::global(tokens, declarations, functions, types);
    for (index, kernel) in kernels.iter().enumerate() {
        for arguments in &kernel.instantiations {
            let list: Vec<&[Token]> = split(arguments);
            found.add(index, canonical(kernel, &list, &[], &global));
        }
    }
    let mut host = Vec::new();
    for declaration in declarations {
        collect(tokens, declaration, &mut host);
    }
    let calls = Calls::read(tokens, &host, &global);
    for declaration in host {
        for mut environment in calls.environments(tokens, declaration, &global) {
            let mut reader = Reader { files: &program.files, tokens, kernels, found: &mut found, aliases: Vec::new() };
            environment.read(tokens, declaration.body.clone(), &mut |environment, at| {
                reader.visit(environment, at, declaration.body.end);
            });
        }
    }
    found
}

/// Collects host functions, members of classes included.
fn collect<'a>(tokens: &[Token], declaration: &'a Declaration, out: &mut Vec<&'a Declaration>) {
    let function = declaration.kind == Kind::Function && !declaration.body.is_empty();
    let kernel = declaration.words(tokens).iter().any(|t| t.is("__host__"));
    if function && (!is_device(declaration, tokens) || kernel) {
        out.push(declaration);
    }
    for member in &declaration.members {
        collect(tokens, member, out);
    }
}

struct Reader<'a> {
    files: &'a [SourceFile],
    tokens: &'a [Token],
    kernels: &'a [Kernel],
    found: &'a mut Launches,
    /// Variables that hold a kernel, `auto f = k<16>;`: name, and position of the kernel's name.
    aliases: Vec<(&'a str, usize)>,
}

impl<'a> Reader<'a> {
    fn is(&self, at: usize, text: &str) -> bool {
        self.tokens.get(at).is_some_and(|t| t.is(text))
    }

    fn visit(&mut self, environment: &Environment<'_>, at: usize, end: usize) {
        let Some(token) = self.tokens.get(at) else { return };
        if token.is("<<<") {
            self.chevrons(environment, at, end);
        } else if FUNCTIONS.iter().any(|f| token.is(f)) && self.is(at + 1, "(") {
            self.call(environment, at + 1, end);
        } else if token.is_name()
            && let Some(kernel) = self.kernel(at)
        {
            self.mention(environment, at, end, kernel);
        }
    }

    /// The index of the kernel that the name at `at` refers to.
    fn kernel(&self, at: usize) -> Option<usize> {
        let name = self.tokens.get(at).filter(|t| t.is_name())?;
        let mut path = vec![&*name.text];
        let mut first = at;
        while first >= 2 && self.is(first - 1, "::") && self.tokens.get(first - 2).is_some_and(Token::is_name) {
            first -= 2;
            path.insert(0, self.tokens.get(first).map_or("", |t| &t.text));
        }
        let path = path.join("::");
        self.kernels.iter().position(|kernel| {
            kernel.name.strip_suffix(&path).is_some_and(|rest| rest.is_empty() || rest.ends_with("::"))
        })
    }

    /// Handles a kernel's name in any expression: `k<16>` needs this instance.
    fn mention(&mut self, environment: &Environment<'_>, at: usize, end: usize, kernel: usize) {
        let mut first = at;
        while first >= 2 && self.is(first - 1, "::") {
            first -= 2;
        }
        first -= usize::from(first > 0 && self.is(first - 1, "&"));
        if first >= 2
            && self.is(first - 1, "=")
            && let Some(name) = self.tokens.get(first - 2).filter(|t| t.is_name())
        {
            self.aliases.push((&name.text, at));
        }
        let Some(template) = self.kernels.get(kernel).filter(|k| k.template.is_some()) else { return };
        if self.is(at + 1, "<")
            && let Some(after) = close_angle(self.tokens, at + 1, end)
            && !self.is(after, "<<<")
        {
            let list = split(self.tokens.get(at + 2..after - 1).unwrap_or(&[]));
            let arguments = canonical(template, &list, &[], environment);
            self.found.add(kernel, arguments);
        }
    }

    /// Handles `k<…><<<grid, block, shared, stream>>>(arguments)`.
    fn chevrons(&mut self, environment: &Environment<'_>, at: usize, end: usize) {
        let Some((name, list)) = self.callee(at) else { return };
        let closes = |i: usize| {
            let glued = |i: usize| self.tokens.get(i).is_some_and(|t| t.is(">") && t.glued);
            self.is(i, ">") && glued(i + 1) && glued(i + 2)
        };
        let mut close_at = at + 1;
        while close_at < end && !closes(close_at) {
            close_at = if self.is(close_at, "(") || self.is(close_at, "{") || self.is(close_at, "[") {
                close(self.tokens, close_at, end)
            } else {
                close_at + 1
            };
            if self.is(close_at, ";") {
                return;
            }
        }
        let configuration = split(self.tokens.get(at + 1..close_at).unwrap_or(&[]));
        let arguments_end =
            if self.is(close_at + 3, "(") { close(self.tokens, close_at + 3, end) } else { close_at + 3 };
        let actual = split(self.tokens.get(close_at + 4..arguments_end.saturating_sub(1)).unwrap_or(&[]));
        self.add(environment, name, list, &configuration, actual, at);
    }

    /// Handles `cudaLaunchKernel((void*)k, grid, block, arguments, shared, stream)`.
    fn call(&mut self, environment: &Environment<'_>, open: usize, end: usize) {
        let after = close(self.tokens, open, end);
        let parts = split(self.tokens.get(open + 1..after.saturating_sub(1)).unwrap_or(&[]));
        let [kernel, grid, block, _, rest @ ..] = &parts[..] else { return };
        // The kernel is the last name of the argument, outside of its template arguments.
        let first_end = open + 1 + kernel.len();
        let Some((name, list)) = self.callee(first_end) else { return };
        let mut configuration = vec![*grid, *block];
        configuration.extend(rest.first());
        self.add(environment, name, list, &configuration, Vec::new(), open);
    }

    /// The name before `at`, and its template arguments: `k<16>`.
    fn callee(&self, at: usize) -> Option<(usize, Option<&'a [Token]>)> {
        let mut last = at.checked_sub(1)?;
        let mut list = None;
        while self.is(last, ")") {
            last = last.checked_sub(1)?;
        }
        if self.is(last, ">") {
            let closing = last;
            let mut depth = 0usize;
            loop {
                depth += usize::from(self.is(last, ">"));
                if self.is(last, "<") {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        break;
                    }
                }
                if self.is(last, ";") || self.is(last, "{") {
                    return None;
                }
                last = last.checked_sub(1)?;
            }
            list = self.tokens.get(last + 1..closing);
            last = last.checked_sub(1)?;
        }
        if self.kernel(last).is_some() {
            return Some((last, list));
        }
        // A variable that holds the kernel.
        let name = self.tokens.get(last)?;
        let (_, at) = self.aliases.iter().rev().find(|(alias, _)| name.is(alias))?;
        let after = close_angle(self.tokens, at + 1, self.tokens.len()).filter(|_| self.is(at + 1, "<"));
        Some((*at, after.and_then(|after| self.tokens.get(at + 2..after - 1))))
    }

    /// The source text of an expression, with unexpanded macros.
    fn text(&self, part: &[Token], place: usize) -> String {
        let (Some(first), Some(last)) = (part.first(), part.last()) else { return String::new() };
        let file = self.files.get(first.file as usize).filter(|_| first.file == last.file);
        let source = file.and_then(|file| file.text.get(first.start..last.end));
        match source {
            // A token from a macro has the range of the whole invocation.
            Some(source) if !(first.start..last.end).contains(&place) => {
                source.split_whitespace().collect::<Vec<_>>().join(" ")
            }
            _ => written(part),
        }
    }

    fn argument(&self, part: &[Token], environment: &Environment<'_>, place: usize) -> LaunchArgument {
        let value = evaluate(part, environment).and_then(|value| match value {
            Value::Integer(value) => Some(value as f64),
            Value::Real(value) => Some(value),
            Value::Dim(_) => None,
        });
        LaunchArgument { text: self.text(part, place), value }
    }

    fn add(
        &mut self,
        environment: &Environment<'_>,
        name: usize,
        list: Option<&[Token]>,
        configuration: &[&[Token]],
        actual: Vec<&[Token]>,
        at: usize,
    ) {
        let Some(place) = self.tokens.get(at) else { return };
        let (Some(kernel), true) = (self.kernel(name), self.found.launches.len() < LIMIT) else { return };
        // Among overloads, the kernel with the number of arguments is chosen.
        let same = |k: &&(usize, &Kernel)| self.kernels.get(kernel).is_some_and(|other| other.name == k.1.name);
        let kernel = self
            .kernels
            .iter()
            .enumerate()
            .filter(|k| same(&k))
            .find(|k| k.1.params.len() == actual.len())
            .map_or(kernel, |(index, _)| index);
        let Some(source) = self.kernels.get(kernel) else { return };
        let given = list.map(split).unwrap_or_default();
        let arguments = canonical(source, &given, &actual, environment);
        if source.template.is_some() {
            self.found.add(kernel, arguments.clone());
        }
        let axes = |part: Option<&&[Token]>| -> Option<[u32; 3]> {
            let axes = match evaluate(part?, environment)? {
                Value::Dim(axes) => axes,
                value => [value.integer()?, 1, 1],
            };
            let [x, y, z] = axes.map(|axis| u32::try_from(axis).ok().filter(|axis| *axis > 0));
            Some([x?, y?, z?])
        };
        let shared = match configuration.get(2) {
            None => Some(0),
            Some(part) => {
                evaluate(part, environment).and_then(Value::integer).and_then(|bytes| u32::try_from(bytes).ok())
            }
        };
        let text = configuration.iter().map(|part| self.text(part, place.start)).collect::<Vec<_>>().join(", ");
        let launch = ProposedLaunch {
            grid: axes(configuration.first()),
            block: axes(configuration.get(1)),
            shared,
            arguments: actual.iter().map(|part| self.argument(part, environment, place.start)).collect(),
            line: place.line,
            text: format!("<<<{text}>>>"),
        };
        let launch = Launch { kernel, arguments, launch };
        let known = |other: &Launch| {
            other.kernel == launch.kernel && other.arguments == launch.arguments && other.launch == launch.launch
        };
        if !self.found.launches.iter().any(known) {
            self.found.launches.push(launch);
        }
    }
}

impl Launches {
    fn add(&mut self, kernel: usize, arguments: Option<Vec<String>>) {
        let Some(arguments) = arguments else { return };
        let instance = Instance { kernel, arguments };
        if self.instances.len() < LIMIT && !self.instances.contains(&instance) {
            self.instances.push(instance);
        }
    }
}

/// The template arguments of an instance in canonical spelling; `None` if one is unknown.
///
/// `actual` are the arguments of the launch, from which omitted types are deduced.
pub(super) fn canonical(
    kernel: &Kernel,
    given: &[&[Token]],
    actual: &[&[Token]],
    environment: &Environment<'_>,
) -> Option<Vec<String>> {
    let params = kernel.template.as_deref().unwrap_or(&[]);
    let mut out = Vec::new();
    for (i, param) in params.iter().enumerate() {
        if param.is_pack {
            out.extend(given.get(i..).unwrap_or(&[]).iter().map(|tokens| join(tokens)));
            return Some(out);
        }
        match given.get(i) {
            Some(tokens) => out.push(template_argument(param, tokens, environment)?),
            None => match deduced(kernel, param, actual, environment) {
                Some(ty) => out.push(ty),
                // The compiler adds this default argument and all following ones.
                None if param.has_default => return Some(out),
                None => return None,
            },
        }
    }
    (given.len() <= params.len()).then_some(out)
}

fn template_argument(param: &TemplateParam, tokens: &[Token], environment: &Environment<'_>) -> Option<String> {
    let value = evaluate(tokens, environment).filter(|_| param.is_number);
    match value {
        Some(value) if param.is_bool => return Some((value.integer()? != 0).to_string()),
        Some(value) => return Some(value.integer()?.to_string()),
        None => {}
    }
    // A type, an enumerator or a function. Local aliases are replaced by their definitions.
    let mut tokens = tokens;
    for _ in 0..8 {
        let [name] = tokens else { break };
        match environment.types.aliases.get(&*name.text) {
            Some(alias) => tokens = alias,
            None => break,
        }
    }
    let known = tokens.iter().all(|t| !environment.is_unknown(&t.text)) && may_be_type(tokens);
    known.then(|| join(tokens))
}

/// Deduces the type `T` from an argument for a parameter `T`, `T*` or `const T*`.
fn deduced(
    kernel: &Kernel,
    param: &TemplateParam,
    actual: &[&[Token]],
    environment: &Environment<'_>,
) -> Option<String> {
    if !param.is_type {
        return None;
    }
    kernel.params.iter().zip(actual).find_map(|(formal, actual)| {
        let words = |tokens: &[Token]| -> (Vec<String>, usize) {
            let word = |t: &&Token| !super::types::is_qualifier(t) && !t.is("*");
            let stars = tokens.iter().filter(|t| t.is("*")).count();
            (tokens.iter().filter(word).map(|t| t.text.to_string()).collect(), stars)
        };
        let (name, pointers) = words(&formal.ty);
        if name != [param.name.clone()] {
            return None;
        }
        let ty = environment.type_of(actual)?;
        let (_, stars) = words(&ty);
        let kept: Vec<Token> = ty.iter().filter(|t| !super::types::is_qualifier(t) && !t.is("*")).cloned().collect();
        let [only] = &kept[..] else {
            let known = kept.iter().all(|t| !environment.is_unknown(&t.text));
            return (stars == pointers && known && may_be_type(&kept)).then(|| join(&kept));
        };
        let resolved =
            environment.types.aliases.get(&*only.text).map_or_else(|| only.text.to_string(), |alias| join(alias));
        let known = !only.is("auto") && !environment.is_unknown(&only.text) && !environment.is_unknown(&resolved);
        (stars == pointers && known).then_some(resolved)
    })
}

/// Splits `k<16>` of `--kernel` into the tokens of the name and its template arguments.
pub(super) fn arguments_of(name: &[Token]) -> Option<(&[Token], Vec<&[Token]>)> {
    let open = name.iter().position(|t| t.is("<"));
    match open {
        None => Some((name, Vec::new())),
        Some(open) => {
            let end = close_angle(name, open, name.len()).filter(|end| *end == name.len())?;
            Some((name.get(..open)?, split(name.get(open + 1..end - 1)?)))
        }
    }
}
