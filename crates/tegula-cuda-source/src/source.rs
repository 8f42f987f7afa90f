//! The source of a program: its kernels, their instances and launches.

use std::path::{Path, PathBuf};

use super::constant::evaluate;
use super::declaration::{Declaration, declarations};
use super::environment::{Environment, Functions, functions};
use super::launch::{Instance, Launches, arguments_of, canonical, launches};
use super::preprocess::{Preprocessed, preprocess};
use super::signature::{Kernel, kernels, types};
use super::token::{join, tokens};
use super::types::Types;
use super::{CompileError, CompileOptions, KernelSource};

/// Properties of the compiler that predefined macros depend on.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// Version of CUDA.
    pub(super) version: (u32, u32),
    /// Whether the compiler is NVRTC.
    pub(super) runtime: bool,
}

impl Default for Target {
    fn default() -> Self {
        Self { version: (13, 0), runtime: true }
    }
}

/// The source of a program.
pub(super) struct Source {
    pub(super) program: Preprocessed,
    pub(super) declarations: Vec<Declaration>,
    kernels: Vec<Kernel>,
    types: Types,
    functions: Functions,
    launches: Launches,
    path: PathBuf,
}

impl Source {
    /// Reads a program and its headers.
    pub(super) fn read(path: &Path, text: &str, options: &CompileOptions, target: &Target) -> Self {
        let read = |path: &Path| std::fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let mut defines = predefined(options, target);
        defines.extend(options.defines.iter().cloned());
        let program = preprocess(path, text, &defines, &options.includes, &read);
        let declarations = declarations(&program.tokens);
        let kernels = kernels(&program.tokens, &declarations);
        let types = types(&program.tokens, &declarations);
        let functions = functions(&program.tokens, &declarations);
        let launches = launches(&program, &declarations, &functions, &kernels, &types);
        Self { program, declarations, kernels, types, functions, launches, path: path.to_owned() }
    }

    fn environment(&self) -> Environment<'_> {
        Environment::global(&self.program.tokens, &self.declarations, &self.functions, &self.types)
    }

    /// The instance that a name requests; `None` without a name, or for a symbol.
    pub(super) fn request(&self, name: Option<&str>) -> Result<Option<Instance>, CompileError> {
        if self.kernels.is_empty() {
            return Err(CompileError::NoKernels { path: self.path.clone() });
        }
        let Some(name) = name else { return Ok(None) };
        let listed = self.list(None, &mut |_, _| None);
        if listed.iter().any(|kernel| kernel.template_params.is_empty() && matches(kernel, name)) {
            return Ok(None);
        }
        let known = || listed.iter().map(|kernel| kernel.name.clone()).collect();
        let list = tokens(name, 0);
        let Some((path, given)) = arguments_of(&list) else { return Err(unknown(&self.path, name, known())) };
        let path = join(path);
        let is_named = |kernel: &Kernel| is_suffix(&kernel.name, &path);
        let found = self.kernels.iter().enumerate().find(|(_, kernel)| is_named(kernel) && kernel.template.is_some());
        let Some((index, kernel)) = found else {
            // Symbols are known only after the compilation.
            return if super::demangle(name).is_some() { Ok(None) } else { Err(unknown(&self.path, name, known())) };
        };
        let template = kernel.template.as_deref().unwrap_or(&[]);
        let params = template.iter().map(|param| param.text.clone()).collect::<Vec<_>>().join(", ");
        let instances: Vec<&Instance> = self.launches.instances.iter().filter(|i| i.kernel == index).collect();
        let bare = !list.iter().any(|t| t.is("<"));
        if bare && let [only] = instances[..] {
            return Ok(Some(only.clone()));
        }
        let arguments = canonical(kernel, &given, &[], &self.environment());
        let several = bare && instances.len() > 1;
        match arguments {
            Some(arguments) if !several => Ok(Some(Instance { kernel: index, arguments })),
            _ if bare || given.len() < template.len() => Err(CompileError::Template {
                name: kernel.name.clone(),
                params,
                example: match instances.first() {
                    Some(instance) => self.name(instance),
                    None => {
                        let example = |param: &super::signature::TemplateParam| match (param.is_type, param.is_bool) {
                            (true, _) => "float",
                            (_, true) => "true",
                            _ => "16",
                        };
                        let needed = template.iter().filter(|param| !param.has_default);
                        format!("{}<{}>", kernel.name, needed.map(example).collect::<Vec<_>>().join(", "))
                    }
                },
            }),
            _ => Err(CompileError::Instance {
                name: name.to_owned(),
                kernel: kernel.name.clone(),
                reason: if given.len() > template.len() {
                    "too many arguments"
                } else {
                    "an argument is not a constant"
                }
                .to_owned(),
                params,
            }),
        }
    }

    /// The instances to compile: those in the program, and the requested one.
    pub(super) fn instances(&self, requested: Option<&Instance>) -> Vec<Instance> {
        let template = |i: &&Instance| self.kernels.get(i.kernel).is_some_and(|k| k.template.is_some());
        let mut instances: Vec<Instance> = self.launches.instances.iter().filter(template).cloned().collect();
        if let Some(requested) = requested
            && !instances.contains(requested)
        {
            instances.push(requested.clone());
        }
        instances
    }

    /// The C++ name of an instance, such as `ns::k<16>`.
    pub(super) fn name(&self, instance: &Instance) -> String {
        let Some(kernel) = self.kernels.get(instance.kernel) else { return String::new() };
        match &kernel.template {
            Some(_) => format!("{}<{}>", kernel.name, instance.arguments.join(", ")),
            None => kernel.name.clone(),
        }
    }

    /// Number of the file and lines of a kernel.
    pub(super) fn place(&self, kernel: usize) -> (u32, (u32, u32)) {
        self.kernels.get(kernel).map_or((0, (0, 0)), |kernel| (kernel.file, kernel.lines))
    }

    /// Lists the kernels and instances; `symbol` returns the symbol of each.
    pub(super) fn list(
        &self,
        requested: Option<&Instance>,
        symbol: &mut dyn FnMut(&Instance, bool) -> Option<String>,
    ) -> Vec<KernelSource> {
        let instances = self.instances(requested);
        let mut out = Vec::new();
        for (index, kernel) in self.kernels.iter().enumerate() {
            let mut mine: Vec<&Instance> = instances.iter().filter(|i| i.kernel == index).collect();
            let plain = Instance { kernel: index, arguments: Vec::new() };
            let template = kernel.template.is_some();
            let without_instance = mine.is_empty();
            if without_instance {
                mine.push(&plain);
            }
            for instance in mine {
                let known = !(template && without_instance);
                let mut source = self.source(kernel, instance, known);
                source.symbol = if known { symbol(instance, template) } else { None };
                out.push(source);
            }
        }
        out
    }

    fn source(&self, kernel: &Kernel, instance: &Instance, known: bool) -> KernelSource {
        let template = kernel.template.as_deref().unwrap_or(&[]);
        let mut types = self.types.clone();
        for (i, param) in template.iter().enumerate() {
            match instance.arguments.get(i).filter(|_| param.is_type && !param.is_pack) {
                Some(argument) => types.aliases.insert(param.name.clone(), tokens(argument, 0)),
                // A type alias of the program with the name of this parameter is hidden.
                None => types.aliases.remove(&param.name),
            };
        }
        let launches = self.launches.launches.iter().filter(|launch| {
            let same = launch.arguments.as_ref() == Some(&instance.arguments);
            self.kernels.get(launch.kernel).is_some_and(|other| std::ptr::eq(other, kernel))
                && (template.is_empty() || same || !known)
        });
        KernelSource {
            name: if known { self.name(instance) } else { kernel.name.clone() },
            symbol: None,
            file: self.program.files.get(kernel.file as usize).map_or_else(PathBuf::new, |file| file.path.clone()),
            line: kernel.lines.0,
            last_line: kernel.lines.1,
            params: kernel.params(&types),
            template_params: template.iter().map(|param| param.text.clone()).collect(),
            launches: launches.map(|launch| launch.launch.clone()).collect(),
        }
    }

    /// The kernel of an instance and its template parameters, for messages.
    pub(super) fn template(&self, instance: &Instance) -> (String, String) {
        let Some(kernel) = self.kernels.get(instance.kernel) else { return Default::default() };
        let params = kernel.template.as_deref().unwrap_or(&[]).iter().map(|param| param.text.clone());
        (kernel.name.clone(), params.collect::<Vec<_>>().join(", "))
    }
}

/// The predefined macros of the compiler, and those of the options.
fn predefined(options: &CompileOptions, target: &Target) -> Vec<String> {
    let digits: String = options.arch.chars().filter(char::is_ascii_digit).collect();
    let standard = match options.standard.as_deref().map(|s| s.trim_start_matches("c++").trim_start_matches("gnu++")) {
        Some("11") => "201103L",
        Some("14") => "201402L",
        Some("20") => "202002L",
        Some("23" | "2b") => "202302L",
        _ => "201703L",
    };
    let (major, minor) = target.version;
    let mut macros = vec![
        "__CUDACC__=1".to_owned(),
        format!("__CUDA_ARCH__={digits}0"),
        format!("__cplusplus={standard}"),
        format!("__CUDACC_VER_MAJOR__={major}"),
        format!("__CUDACC_VER_MINOR__={minor}"),
        format!("CUDART_VERSION={}", major * 1000 + minor * 10),
        format!("CUDA_VERSION={}", major * 1000 + minor * 10),
    ];
    let system: &[&str] = if cfg!(windows) { &["_WIN32=1"] } else { &["__LP64__=1", "__linux__=1"] };
    macros.extend(system.iter().map(|name| (*name).to_owned()));
    macros.push(if target.runtime { "__CUDACC_RTC__=1" } else { "__NVCC__=1" }.to_owned());
    macros
}

/// Whether a qualified name ends with a path: `ns::k` ends with `k`.
fn is_suffix(name: &str, path: &str) -> bool {
    let path = path.trim_start_matches("::");
    !path.is_empty() && name.strip_suffix(path).is_some_and(|rest| rest.is_empty() || rest.ends_with("::"))
}

/// Whether a name refers to a kernel: `ns::k<16>`, `k<16>`, `k`, or its symbol.
pub(super) fn matches(kernel: &KernelSource, name: &str) -> bool {
    let squeeze = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    let (full, wanted) = (squeeze(&kernel.name), squeeze(name));
    let bare = full.split('<').next().unwrap_or("");
    kernel.symbol.as_deref() == Some(name)
        || match wanted.contains('<') {
            true => {
                // Namespaces can be omitted, but not parts of the template arguments.
                let (path, arguments) = wanted.split_once('<').unwrap_or((&wanted, ""));
                is_suffix(bare, path) && full.split_once('<').is_some_and(|(_, own)| same_arguments(own, arguments))
            }
            false => is_suffix(bare, &wanted),
        }
}

/// Whether two template argument lists are equal after evaluation of constant expressions.
fn same_arguments(own: &str, wanted: &str) -> bool {
    let list = |text: &str| {
        let tokens = tokens(text.strip_suffix('>').unwrap_or(text), 0);
        super::token::split(&tokens)
            .into_iter()
            .map(|part| match evaluate(part, &NoNames) {
                Some(value) => value.integer().map_or_else(|| join(part), |value| value.to_string()),
                None => super::types::spelling(part),
            })
            .collect::<Vec<_>>()
    };
    list(own) == list(wanted)
}

struct NoNames;

impl super::constant::Names for NoNames {
    fn value(&self, name: &str) -> Option<super::constant::Value> {
        let value = ["false", "true"].iter().position(|word| *word == name)?;
        i64::try_from(value).ok().map(super::constant::Value::Integer)
    }
}

/// Whether two lists of template arguments are equal in canonical spelling.
pub(super) fn equal_arguments(a: &[String], b: &[String]) -> bool {
    a.len() == b.len() && same_arguments(&a.join(","), &b.join(","))
}

/// The error for an unknown kernel, with the most similar name.
pub(super) fn unknown(path: &Path, name: &str, known: Vec<String>) -> CompileError {
    let wanted = name.split('<').next().unwrap_or(name);
    let distance_of = |kernel: &String| {
        let bare = kernel.split('<').next().unwrap_or(kernel);
        distance(wanted, bare).min(distance(wanted, bare.rsplit("::").next().unwrap_or(bare)))
    };
    let best = known.iter().min_by_key(|kernel| distance_of(kernel));
    let suggestion = best.filter(|kernel| distance_of(kernel) <= wanted.len().max(3) / 3).cloned();
    CompileError::UnknownKernel { name: name.to_owned(), path: path.to_owned(), known, suggestion }
}

/// The edit distance (Levenshtein) of two names.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(256).flat_map(char::to_lowercase).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(256).flat_map(char::to_lowercase).enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (slot, y) in row.iter_mut().skip(1).zip(&b) {
            let cost = (diagonal + usize::from(x != *y)).min(*slot + 1).min(left + 1);
            diagonal = *slot;
            *slot = cost;
            left = cost;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}
